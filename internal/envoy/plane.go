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

	"github.com/lastcall-dev/lastcall/drain"
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

	mu       sync.Mutex     // guards what follows
	child    *process.Child // nil when attached to an Envoy that others have started
	layout   *layout
	shown    Stats           // what Envoy showed at the start, counters included
	table    *sockdiag.Table // nil when the kernel has none for us
	ledger   *ledger
	cost     time.Duration // of one look at the table
	lookedAt time.Time     // of the last look, if it succeeded
	last     drain.Activity
	asking   chan struct{} // closed with the answer; nil: no question is under way
	saidBad  bool
	watch    *sockdiag.Loop // nil before Drain
	closing  bool           // StopAccepting was called since watch began

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
		if err := p.layOut(short, false); err != nil {
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

// Changes pushes what the watch sees.
func (p *Plane) Changes() <-chan struct{} { return p.changes }

// CloseIdle does nothing: Envoy cannot be told to close idle connections. They
// are closed, with a FIN, when it ends.
func (p *Plane) CloseIdle(context.Context, time.Duration) error { return nil }

// StopAccepting closes the listeners; what is open goes on. Envoy answers before
// its workers have done so: the kernel says when they have.
func (p *Plane) StopAccepting(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
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
