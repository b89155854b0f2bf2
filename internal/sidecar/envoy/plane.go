package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Options choose the Envoy, and how it is drained.
type Options struct {
	Admin  string // address of its admin API: host:port or unix:PATH
	Attach bool   // use a running Envoy; the fields up to Stdout and Stderr are unused then

	Path      string    // the program; looked up in PATH when it has no slash
	Config    string    // its configuration file; empty: made from Bootstrap
	Bootstrap Bootstrap // used without Config

	DrainTime      time.Duration // --drain-time-s
	Concurrency    int           // --concurrency; 0: a worker for each core
	LogLevel       string        // -l; empty: warning
	Args           []string      // more arguments
	Stdout, Stderr io.Writer     // nil: the agent's

	StartTimeout time.Duration // until it serves; 0: a minute

	Hook      bool // for one drain: responses may cost Envoy more
	WatchOnly bool // another drains it: its listeners stay as they are

	FailHealthcheck bool     // also call /healthcheck/fail at the drain
	LeaveOut        []uint16 // ports of listeners that do not count, in addition to Infrastructure
	Istio           bool     // drain and count as pilot-agent does

	Log *slog.Logger

	blind bool // for tests: the kernel does not report destroyed sockets
}

// Plane is an Envoy as a data plane. It implements drain.DataPlane.
type Plane struct {
	o     Options
	admin *Admin
	log   *slog.Logger

	life context.Context // ends with Shut
	over context.CancelFunc
	work sync.WaitGroup // requests for stats, and goroutines that wait for Envoy's exit

	mu              sync.Mutex     // guards the fields below
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
	exited   chan struct{} // closed when Envoy has exited and the kernel has delivered what it had written
}

var _ drain.DataPlane = (*Plane)(nil)

// Start starts Envoy, or attaches to it, and returns when it serves.
func Start(ctx context.Context, o Options) (*Plane, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.StartTimeout, DefaultStartTimeout))
	defer cancel()
	admin, err := NewAdmin(o.Admin)
	if err != nil {
		return nil, err
	}
	p := &Plane{o: o, admin: admin, log: o.Log, changes: make(chan struct{}, 1), answered: make(chan struct{}, 1),
		exited: make(chan struct{})}
	p.life, p.over = context.WithCancel(context.Background())
	if p.table, err = sockdiag.OpenTable(); err != nil {
		p.log.Warn("cannot read the kernel's socket table; using Envoy's own gauges", "error", err)
	}
	if !o.Attach {
		if err := o.adminIsFree(); err != nil {
			p.Shut()
			return nil, err
		}
		child, err := o.start()
		if err != nil {
			p.Shut()
			return nil, err
		}
		p.follow(child)
	}
	if err := p.learn(ctx); err != nil {
		if c := p.running(); c != nil && c.HasExited() {
			err = fmt.Errorf("envoy exited with code %d before it was ready; its output is in the log above", c.Code())
		}
		p.Shut()
		return nil, err
	}
	return p, nil
}

// learn waits until Envoy serves, and selects the listeners that count.
func (p *Plane) learn(ctx context.Context) error {
	if err := p.admin.await(ctx, p.log, p.exited); err != nil {
		return err
	}
	if err := p.layOut(ctx, true); err != nil {
		return err
	}
	l := p.laidOut()
	if len(l.ports)+len(l.unseen)+len(l.unknown) == 0 {
		p.log.Warn("Envoy has no listener that counts; a drain will not wait for any connection")
	}
	if len(l.hidden) > 0 {
		p.log.Warn("Envoy's stats matcher hides the gauges of requests in flight; treating every open connection as busy",
			"hidden", l.hidden[0], "of", len(l.hidden), "hint", "set "+matcherHint)
	}
	if len(l.unknown) > 0 {
		p.log.Warn("Envoy has a listener without visible connections; every drain will last until the deadline",
			"listener", l.unknown[0], "of", len(l.unknown), "hint", "set "+matcherHint+", or --ignore-port")
	}
	return nil
}

// layOut selects the listeners that count, as of now. Whether Envoy shows counters, which make a response expensive
// with thousands of clusters, is determined only with counters; later the result is kept for the same names.
func (p *Plane) layOut(ctx context.Context, counters bool) error {
	listeners, err := p.admin.Listeners(ctx)
	if err != nil {
		return err
	}
	body, err := p.admin.Stats(ctx, everyFilter, false, !counters)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.ledger != nil || p.o.Hook { // a hook has another plane
			return err
		}
		p.log.Warn("Envoy's stats are unavailable; treating all of them as hidden", "error", err)
	}
	shown := ParseStats(body)
	if counters {
		p.shown = shown
	}
	for name := range p.shown {
		if strings.HasSuffix(name, "."+requestsTotal) || strings.HasSuffix(name, "."+connectionsTotal) {
			shown[name] = 0
		}
	}
	p.layout = layOut(listeners, shown, p.o.LeaveOut, p.table != nil)
	if p.ledger != nil {
		p.ledger.use(p.layout)
		return nil
	}
	if p.table != nil && len(p.layout.ports) > 0 {
		if open, err := p.sockets(sockdiag.Of(sockdiag.Listen)); err != nil || len(open) == 0 {
			p.log.Warn("the kernel's socket table does not show Envoy's listeners; using Envoy's own gauges", "error", err,
				"hint", "Envoy has to be in the same network namespace")
			_ = p.table.Close()
			p.table = nil
			p.layout = layOut(listeners, shown, p.o.LeaveOut, false)
		}
	}
	p.ledger = newLedger(p.layout)
	p.ledger.hook = p.o.Hook
	return nil
}

// Drain makes Envoy send Connection: close and GOAWAY, and begins to watch. In lastcall's own mode the listeners accept
// until StopAccepting; in Istio's modes they stop by themselves after --drain-time-s.
func (p *Plane) Drain(ctx context.Context) error {
	if o := &p.o; !o.Istio && !o.Hook && (o.Attach || o.Config != "" || len(o.Args) > 0) {
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
		errs = append(errs, p.admin.Post(ctx, "/healthcheck/fail"))
	}
	options := []string{"graceful"} // stop after --drain-time-s
	if !p.o.Istio {
		options = append(options, "skip_exit") // never
	}
	return errors.Join(append(errs, p.drainListeners(ctx, options...))...)
}

// drainListeners makes Envoy send Connection: close and GOAWAY. Without options the listeners stop at once. Listeners
// of other directions continue if there are inbound ones.
func (p *Plane) drainListeners(ctx context.Context, options ...string) error {
	if p.laidOut().inboundOnly {
		options = append([]string{"inboundonly"}, options...)
	}
	return p.admin.Post(ctx, strings.TrimSuffix("/drain_listeners?"+strings.Join(options, "&"), "?"))
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
	return fmt.Sprintf("Envoy's stats matcher hides %d stats, such as %s: their connections count as busy while they "+
		"are open; set %s", len(hidden), hidden[0], matcherHint)
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
	if err := p.drainListeners(ctx); err != nil {
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
