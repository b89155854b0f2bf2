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
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Plane is an Envoy as a data plane. It implements drain.DataPlane.
type Plane struct {
	o     Options
	admin *Admin
	log   *slog.Logger

	life context.Context // ends with Shut
	over context.CancelFunc
	work sync.WaitGroup // requests for stats, and goroutines that wait for Envoy's exit

	mu              sync.Mutex     // guards what follows
	child           *process.Child // nil when attached to a running Envoy
	layout          *layout
	shown           Stats           // at the start, counters included
	table           *sockdiag.Table // nil when it is not available
	ledger          *ledger
	cost            time.Duration // of one look at the table
	lookedAt        time.Time     // of the last look, if it succeeded
	last            drain.Activity
	asking          chan struct{} // closed with the response; nil: no request in progress
	statsWarned     bool
	watch           *sockdiag.Loop // nil before Drain
	closing         bool           // StopAccepting was called since watch began
	ignoresArrivals bool           // new connections and requests no longer count

	changes  chan struct{}
	answered chan struct{} // receives after each response of Envoy's
	exited   chan struct{} // closed when Envoy has exited and is not being replaced
}

var _ drain.DataPlane = (*Plane)(nil)

// running is Envoy's process; nil when it is not ours.
func (p *Plane) running() *process.Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// put sets Envoy's process.
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

// Drain makes Envoy send Connection: close and GOAWAY, and begins to watch. In lastcall's own mode the listeners accept
// until StopAccepting; in Istio's modes they stop by themselves after --drain-time-s.
func (p *Plane) Drain(ctx context.Context) error {
	if p.o.changes() {
		// Listeners may have changed since the start.
		short, cancel := context.WithTimeout(ctx, relearnTimeout)
		if err := p.layOut(short, false); err != nil {
			p.log.Warn("cannot read Envoy's current listeners; using those of the start", "error", err)
		}
		cancel()
	}
	p.begin()
	if p.o.WatchOnly {
		return nil
	}
	var errs []error
	if p.o.FailHealthcheck {
		errs = append(errs, p.admin.HealthcheckFail(ctx, true))
	}
	errs = append(errs, p.admin.DrainListeners(ctx, p.laidOut().inboundOnly, true, !p.o.Istio))
	return errors.Join(errs...)
}

// relearnTimeout is short: Connection: close and GOAWAY wait for it.
const relearnTimeout = 500 * time.Millisecond

func (p *Plane) laidOut() *layout {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.layout
}

// Hidden describes the stats that Envoy's matcher hides, and what follows; it is empty when none is.
func (p *Plane) Hidden() string {
	hidden := p.laidOut().hidden
	if len(hidden) == 0 {
		return ""
	}
	return fmt.Sprintf("Envoy's stats matcher hides %d stats, such as %s: their connections count as busy while they are open; set %s", len(hidden), hidden[0], matcherHint)
}

// Changes receives after each change that the watch has seen.
func (p *Plane) Changes() <-chan struct{} { return p.changes }

// CloseIdle does nothing: Envoy has no command to close idle connections. They are closed, with a FIN, when it exits.
func (p *Plane) CloseIdle(context.Context, time.Duration) error { return nil }

// StopAccepting closes the listeners; open connections continue. Envoy responds before its workers have closed them:
// the kernel's table shows when they have. With WatchOnly new connections only cease to count.
func (p *Plane) StopAccepting(ctx context.Context) error {
	p.mu.Lock()
	p.closing, p.ignoresArrivals = true, p.o.WatchOnly
	p.mu.Unlock()
	if p.o.WatchOnly {
		return nil
	}
	if err := p.admin.DrainListeners(ctx, p.laidOut().inboundOnly, false, false); err != nil {
		return err
	}
	p.mu.Lock()
	if len(p.layout.unseen) > 0 {
		p.ledger.forget() // an unseen connection may have been accepted last
	}
	p.mu.Unlock()
	var listening []sockdiag.Socket
	var err error
	isClosed := func() bool { listening, err = p.listening(); return err != nil || len(listening) == 0 }
	if late := poll.Until(ctx, time.Millisecond, isClosed); late != nil {
		return fmt.Errorf("stop accepting: %d listeners of envoy's are still open: %w", len(listening), late)
	}
	return err
}

// listening are the sockets of listeners that StopAccepting closes, while they are open.
func (p *Plane) listening() ([]sockdiag.Socket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, err := p.sockets(sockdiag.Of(sockdiag.Listen))
	return slices.DeleteFunc(all, func(s sockdiag.Socket) bool {
		return !slices.Contains(p.layout.bound[s.Local.Port()], s.Local.Addr()) ||
			!slices.Contains(p.layout.closing, s.Local.Port())
	}), err
}

// Open lists the busy connections, as far as the kernel shows: those whose client sent last come before those that are
// receiving a response. The age is the time since the client sent bytes.
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
		case p.layout.evidence[s.Local.Port()] == openIsBusy, s.WriteQueue > 0, s.ReadQueue > 0:
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
		if p.layout.evidence[s.Local.Port()] == openIsBusy {
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
