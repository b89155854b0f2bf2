package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/process"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// Plane is an Envoy as a data plane. It implements drain.DataPlane.
type Plane struct {
	o     Options
	admin *Admin
	log   *slog.Logger

	life context.Context // ends with Shut
	over context.CancelFunc
	work sync.WaitGroup // questions for stats that are under way, and whoever waits for Envoy's end

	mu      sync.Mutex     // guards what follows
	child   *process.Child // nil when attached to an Envoy that others have started
	layout  *layout
	table   *sockdiag.Table // nil when the kernel has none for us
	ledger  *ledger
	cost    time.Duration // of one look at the table
	last    drain.Activity
	asking  chan struct{} // closed with the answer; nil: no question is under way
	saidBad bool
	watch   *watch // nil before Drain

	changes  chan struct{}
	answered chan struct{} // carries a signal after each answer of Envoy's
	exited   chan struct{} // closed when Envoy has ended and no other takes its place
}

var _ drain.DataPlane = (*Plane)(nil)

// Pid is Envoy's process; 0 when it is not ours.
func (p *Plane) Pid() int {
	if c := p.running(); c != nil {
		return c.Pid()
	}
	return 0
}

// running is Envoy's process; nil when it is not ours.
func (p *Plane) running() *process.Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// put takes a process as Envoy's.
func (p *Plane) put(c *process.Child) {
	p.mu.Lock()
	p.child = c
	p.mu.Unlock()
	p.log.Info("Envoy started", "pid", c.Pid(), "admin", p.o.Admin)
	p.work.Go(func() {
		<-c.Done()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.child == c {
			close(p.exited)
		}
	})
}

// Drain makes Envoy say goodbye, and begins to watch. In lastcall's own way the
// listeners go on accepting until StopAccepting; in Istio's they stop by
// themselves after --drain-time-s.
func (p *Plane) Drain(ctx context.Context) error {
	if p.o.changes() {
		// Listeners may have come and gone since the start.
		short, cancel := context.WithTimeout(ctx, relearnTimeout)
		if err := p.layOut(short); err != nil {
			p.log.Warn("Envoy's listeners of now cannot be had: those of the start count", "error", err)
		}
		cancel()
	}
	p.begin()
	var errs []error
	if p.o.FailHealthcheck {
		errs = append(errs, p.admin.HealthcheckFail(ctx, true))
	}
	errs = append(errs, p.admin.DrainListeners(ctx, p.laidOut().inboundOnly, true, !p.o.Istio))
	return errors.Join(errs...)
}

// relearnTimeout is short: the goodbye waits for it.
const relearnTimeout = 500 * time.Millisecond

func (p *Plane) laidOut() *layout {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.layout
}

// lookPatience bounds how long Activity waits for an answer of Envoy's that makes
// it certain.
const lookPatience = 250 * time.Millisecond

// Activity looks at the kernel's table, and at Envoy's stats if they have
// something new to say and are not asked too often. While the watch looks too,
// what is not certain yet counts as busy, and the answer is a change; else it is
// waited for a little.
func (p *Plane) Activity(ctx context.Context) (drain.Activity, error) {
	if p.o.Istio {
		return p.istioActivity(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	for {
		p.mu.Lock()
		a, err := p.look()
		certain := err != nil || p.watch != nil || p.ledger.settled()
		asking := p.asking
		p.mu.Unlock()
		if certain {
			return a, err
		}
		patience := time.NewTimer(settle)
		select {
		case <-asking: // for ever when there is none
		case <-patience.C:
		case <-ctx.Done():
		}
		if patience.Stop(); ctx.Err() != nil {
			return a, nil
		}
	}
}

// look is one look; mu is held. Whoever looks, a change is told.
func (p *Plane) look() (drain.Activity, error) {
	now := time.Now()
	sockets, err := p.sockets(connectionStates)
	if err != nil {
		p.tell()
		return drain.Activity{}, err
	}
	p.cost = (3*p.cost + time.Since(now)) / 4
	p.ledger.look(sockets, now)
	if p.asking == nil && p.ledger.due(now) {
		p.ask()
	}
	a := p.conclude()
	if a.Busy == 0 && p.child != nil && dying(p.child) {
		return drain.Activity{}, errDying
	}
	return a, nil
}

var errDying = errors.New("envoy is ending by itself")

func (p *Plane) sockets(states sockdiag.States) ([]sockdiag.Socket, error) {
	if p.table == nil {
		return nil, nil
	}
	return p.table.Sockets(states, p.layout.ports)
}

// conclude tells of a change; mu is held.
func (p *Plane) conclude() drain.Activity {
	if now := p.ledger.activity(); now != p.last {
		p.last = now
		p.tell()
	}
	return p.last
}

func (p *Plane) tell() {
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// statsTimeout is how long Envoy may take to answer. With 5,000 clusters and
// every stat it needs 0.2 s on a busy machine (measured).
const statsTimeout = 2 * time.Second

// ask asks for stats, and does not wait: an Envoy that hangs holds up neither the
// watch nor the drain. mu is held.
func (p *Plane) ask() {
	answer := make(chan struct{})
	p.asking = answer
	l, gaugesOnly := p.layout, p.ledger.gaugesOnly()
	p.work.Go(func() {
		defer close(answer)
		ctx, cancel := context.WithTimeout(p.life, statsTimeout)
		defer cancel()
		asked := time.Now()
		body, err := p.admin.Stats(ctx, l.filter, l.usedOnly, gaugesOnly)
		took := time.Since(asked)

		p.mu.Lock()
		defer p.mu.Unlock()
		p.asking = nil
		switch {
		case l != p.layout:
			return // it was asked for another
		case err == nil:
			err = p.ledger.stats(ParseStats(body), gaugesOnly, asked, took)
		default:
			_ = p.ledger.failed(asked, took, err)
		}
		if bad := err != nil; bad != p.saidBad && p.life.Err() == nil {
			if p.saidBad = bad; bad {
				p.log.Warn("Envoy's stats cannot be had: every connection counts as busy until they can", "error", err)
			} else {
				p.log.Info("Envoy's stats can be had again")
			}
		}
		p.conclude()
		select {
		case p.answered <- struct{}{}: // the watch may look sooner now
		default:
		}
	})
}

// istioActivity is pilot-agent's look.
func (p *Plane) istioActivity(ctx context.Context) (drain.Activity, error) {
	body, err := p.admin.Stats(ctx, istioFilter, true, false)
	if err != nil {
		return drain.Activity{}, fmt.Errorf("unable to get listener stats from Envoy : %w", err)
	}
	active, known := istioCount(body)
	return drain.Activity{Known: known, Connections: active, Busy: active}, nil
}

// Changes pushes what the watch sees.
func (p *Plane) Changes() <-chan struct{} { return p.changes }

// CloseIdle does nothing: Envoy cannot be told to close idle connections. They
// are closed, with a FIN, when it ends.
func (p *Plane) CloseIdle(context.Context, time.Duration) error { return nil }

// StopAccepting closes the listeners; what is open goes on. Envoy answers before
// its workers have done so: the kernel says when they have.
func (p *Plane) StopAccepting(ctx context.Context) error {
	if err := p.admin.DrainListeners(ctx, p.laidOut().inboundOnly, false, false); err != nil {
		return err
	}
	p.mu.Lock()
	if len(p.layout.unseen) > 0 {
		p.ledger.forget() // somebody may have slipped in unseen
	}
	p.mu.Unlock()
	for {
		listening, err := p.listening()
		if err != nil || len(listening) == 0 {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("stop accepting: %d listeners of envoy's are still open: %w", len(listening), ctx.Err())
		}
	}
}

// listening are the sockets of listeners that StopAccepting closes, as long as
// they are open.
func (p *Plane) listening() ([]sockdiag.Socket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, err := p.sockets(sockdiag.Of(sockdiag.Listen))
	return slices.DeleteFunc(all, func(s sockdiag.Socket) bool {
		return !slices.Contains(p.layout.bound[s.Local.Port()], s.Local.Addr()) || !slices.Contains(p.layout.closing, s.Local.Port())
	}), err
}

// Open names the connections that are busy, as far as the kernel can tell: those
// whose client was the last to speak before those that are being answered. The
// age is the time since the client said something.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sockets, err := p.sockets(connectionStates)
	if err != nil {
		return nil, err
	}
	sockets = slices.DeleteFunc(sockets, func(s sockdiag.Socket) bool {
		ended := s.State != sockdiag.Established && s.State != sockdiag.CloseWait
		return !p.layout.counts(s.Local) || ended && !undelivered(s)
	})
	waits := func(s sockdiag.Socket) int {
		neverAnswered := s.Acked <= 1 && s.Received > 0 // our SYN counts as one
		switch {
		case p.layout.telling[s.Local.Port()] == openIsBusy, s.WriteQueue > 0, s.ReadQueue > 0:
			return 0
		case s.LastReceived < s.LastSent || neverAnswered:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(sockets, func(a, b sockdiag.Socket) int {
		return cmp.Or(cmp.Compare(waits(a), waits(b)), cmp.Compare(b.LastReceived, a.LastReceived))
	})
	most = min(most, p.last.Busy)
	var out []drain.Conversation
	for _, s := range sockets[:min(most, len(sockets))] {
		protocol := "http"
		if p.layout.telling[s.Local.Port()] == openIsBusy {
			protocol = "tcp"
		}
		out = append(out, drain.Conversation{Peer: s.Remote.String(), Protocol: protocol, Age: drain.Millis(s.LastReceived)})
	}
	if len(out) == 0 && most > 0 {
		// Only Envoy sees them: QUIC, a unix socket.
		out = append(out, drain.Conversation{Peer: "unknown", Protocol: "unknown"})
	}
	return out, nil
}
