package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/process"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// Plane is an Envoy as a data plane. It implements drain.DataPlane.
type Plane struct {
	o     Options
	admin *Admin
	child *process.Child // nil when attached to an Envoy that others have started
	log   *slog.Logger

	layout layout
	table  *sockdiag.Table

	mu      sync.Mutex // guards what follows
	ledger  *ledger
	last    drain.Activity
	saidBad bool

	changes chan struct{}
	exited  <-chan struct{}
	watch   *watch // nil before Drain
	closing sync.Once
}

var _ drain.DataPlane = (*Plane)(nil)

// Pid is Envoy's process; 0 when it is not ours.
func (p *Plane) Pid() int {
	if p.child == nil {
		return 0
	}
	return p.child.Pid()
}

// Drain makes Envoy say goodbye, and begins to watch. In lastcall's own way the
// listeners go on accepting until StopAccepting; in Istio's they stop by
// themselves after --drain-time-s.
func (p *Plane) Drain(ctx context.Context) error {
	p.begin()
	var errs []error
	if p.o.FailHealthcheck {
		errs = append(errs, p.admin.HealthcheckFail(ctx, true))
	}
	errs = append(errs, p.admin.DrainListeners(ctx, p.layout.inboundOnly, true, !p.o.Istio))
	return errors.Join(errs...)
}

// errNoWayBack is Envoy's own limit.
var errNoWayBack = errors.New("an Envoy cannot take its drain back: it goes on serving, and goes on saying goodbye on every response until it is started anew")

// Resume makes Envoy healthy again. It cannot make it stop saying goodbye.
func (p *Plane) Resume(ctx context.Context) error {
	p.end()
	if p.o.FailHealthcheck {
		if err := p.admin.HealthcheckFail(ctx, false); err != nil {
			return err
		}
	}
	return errNoWayBack
}

// Activity looks at the kernel's table, and at Envoy's stats if they have
// something new to say and are not asked too often.
func (p *Plane) Activity(ctx context.Context) (drain.Activity, error) {
	if p.o.Istio {
		return p.istioActivity(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.look(ctx)
}

// look is Activity; mu is held.
func (p *Plane) look(ctx context.Context) (drain.Activity, error) {
	sockets, err := p.table.Sockets(connectionStates, p.layout.ports)
	if err != nil {
		return drain.Activity{}, err
	}
	now := time.Now()
	p.ledger.look(sockets, now)
	if !p.ledger.settled() && p.layout.asked() {
		if may, _ := p.ledger.mayAsk(now); may {
			p.ask(ctx)
		}
	}
	p.last = p.ledger.activity()
	return p.last, nil
}

// statsTimeout is how long Envoy may take to answer. With 5,000 clusters it
// needs 66 ms at most (measured).
const statsTimeout = time.Second

func (p *Plane) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	asked := time.Now()
	body, err := p.admin.Stats(ctx, statsFilter, true)
	took := time.Since(asked)
	if err != nil {
		p.ledger.failed(time.Now(), took)
		if !p.saidBad {
			p.saidBad = true
			p.log.Warn("Envoy's stats cannot be had: every connection counts as busy until they can", "error", err)
		}
		return
	}
	p.saidBad = false
	p.ledger.stats(ParseStats(body), asked, took)
}

// istioActivity is pilot-agent's look.
func (p *Plane) istioActivity(ctx context.Context) (drain.Activity, error) {
	body, err := p.admin.Stats(ctx, istioFilter, true)
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
	if err := p.admin.DrainListeners(ctx, p.layout.inboundOnly, false, false); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		listening, err := p.table.Sockets(sockdiag.Of(sockdiag.Listen), p.layout.ports)
		p.mu.Unlock()
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

// Open names the connections that are busy, as far as the kernel can tell: those
// whose client was the last to speak before those that are being answered. The
// age is the time since the client said something.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sockets, err := p.table.Sockets(connectionStates, p.layout.ports)
	if err != nil {
		return nil, err
	}
	waits := func(s sockdiag.Socket) int {
		neverAnswered := s.Acked <= 1 && s.Received > 0 // our SYN counts as one
		if s.LastReceived < s.LastSent || neverAnswered {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sockets, func(a, b sockdiag.Socket) int {
		return cmp.Or(cmp.Compare(waits(a), waits(b)), cmp.Compare(b.LastReceived, a.LastReceived))
	})
	var out []drain.Conversation
	for _, s := range sockets {
		if len(out) == min(most, p.last.Busy) {
			break
		}
		protocol := "http"
		if p.layout.opaque[s.Local.Port()] {
			protocol = "tcp"
		}
		out = append(out, drain.Conversation{Peer: s.Remote.String(), Protocol: protocol, Age: drain.Millis(s.LastReceived)})
	}
	return out, nil
}

// reportMost bounds the conversations of a last call that are named.
const reportMost = 1000

// LastCall stops accepting and says what is still open. Envoy has no way to end
// single conversations: they end when it does.
func (p *Plane) LastCall(ctx context.Context, _ time.Duration) ([]drain.Conversation, error) {
	open, err := p.Open(ctx, reportMost)
	for i := range open {
		open[i].Ending = "closed"
	}
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	return open, errors.Join(err, p.StopAccepting(ctx))
}

// leaveTime is how long an Envoy may take to leave after /quitquitquit, and
// again after SIGTERM.
const leaveTime = time.Second

// Close ends Envoy so that it flushes its access log and its stats. An Envoy
// that others have started is left to them.
func (p *Plane) Close(ctx context.Context) error {
	p.end()
	if p.child == nil {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, leaveTime)
	err := p.admin.Quit(ask)
	cancel()
	if err != nil {
		p.log.Warn("Envoy was not told to leave by its admin port", "error", err)
		_ = p.child.Signal(syscall.SIGTERM)
	}
	for _, next := range []func(){func() { _ = p.child.Signal(syscall.SIGTERM) }, nil} {
		patience := time.NewTimer(leaveTime)
		select {
		case <-p.child.Done():
			patience.Stop()
			return nil
		case <-ctx.Done():
			patience.Stop()
			return fmt.Errorf("end envoy: %w", ctx.Err())
		case <-patience.C:
			if next != nil {
				next()
			}
		}
	}
	return fmt.Errorf("end envoy: it has not left %v after SIGTERM", leaveTime)
}

// Kill ends Envoy at once. An Envoy that others have started is left to them.
func (p *Plane) Kill() {
	p.end()
	if p.child != nil {
		p.child.Kill()
		<-p.child.Done()
	}
}

// Exited is closed when Envoy has ended. Of an Envoy that others have started it
// is not known.
func (p *Plane) Exited() <-chan struct{} { return p.exited }

// Shut lets go of everything when the plane is needed no more.
func (p *Plane) Shut() {
	p.Kill()
	p.closing.Do(func() { _ = p.table.Close() })
}
