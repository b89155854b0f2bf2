package sockets

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// Options say what to watch.
type Options struct {
	// Ports are the app's, at least one, in any order.
	Ports []uint16

	// IgnoreFrom are clients that do not count: probes, scrapers. In many
	// clusters the node's own address is also what clients come from that a
	// Service has sent over another node.
	IgnoreFrom []netip.Prefix

	// Opaque makes every open connection busy.
	Opaque bool
	// OpaquePorts are those of Ports whose connections are busy while they are open:
	// HTTP/2, gRPC, WebSocket, TLS, whatever the kernel's counters do not tell idle from
	// busy.
	OpaquePorts []uint16
	// StreamPause is how long a response that comes in pieces may pause before it is
	// taken for complete.
	StreamPause time.Duration

	// IdleGrace is how long a connection is quiet before it is idle.
	IdleGrace time.Duration

	// Log hears what is wrong with the watching itself.
	Log *slog.Logger
}

// table is the kernel's, or a test's.
type table interface {
	Sockets(sockdiag.States, []uint16) ([]sockdiag.Socket, error)
	Close() error
}

// kernel is what the plane sees of the machine.
type kernel struct {
	open   func() (table, error)
	watch  func([]uint16) (sockdiag.Reports, error) // of destroyed sockets
	habits func([]uint16) (habits, error)
}

var thisKernel = kernel{
	open:   func() (table, error) { return sockdiag.OpenTable() },
	watch:  func(ports []uint16) (sockdiag.Reports, error) { return sockdiag.WatchDestroyed(ports) },
	habits: readHabits,
}

// Plane is an app without a proxy. It implements drain.DataPlane as far as watching
// goes.
type Plane struct {
	o      Options
	kernel kernel

	mu      sync.Mutex // guards what follows
	table   table
	ledger  *ledger
	cost    time.Duration // of one look
	last    drain.Activity
	failing bool
	assumed map[uint16]int // at the end: connections taken for idle, by port
	watch   *sockdiag.Loop // nil before Drain

	changes chan struct{}
	exited  chan struct{} // never closed: an app that is gone has no connections
}

var _ drain.DataPlane = (*Plane)(nil)

// New returns a plane that watches nothing yet. Close ends it.
func New(o Options) *Plane { return newPlane(o, thisKernel) }

func newPlane(o Options, k kernel) *Plane {
	o.Ports = slices.Compact(slices.Sorted(slices.Values(o.Ports)))
	p := &Plane{o: o, kernel: k, changes: make(chan struct{}, 1), exited: make(chan struct{})}
	var err error
	if p.table, err = k.open(); err != nil {
		p.fallBack(err)
	}
	p.ledger = newLedger(p.o)
	return p
}

// fallBack takes the poorer table, of which nothing is known to be idle.
func (p *Plane) fallBack(why error) {
	p.o.Log.Warn("the kernel does not tell of traffic here: every open connection counts as busy", "error", why)
	p.table, p.o.Opaque = procTable{}, true
}

// Listening lists those of the ports on which somebody listens.
func (p *Plane) Listening() ([]uint16, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sockets, err := p.sockets(sockdiag.Of(sockdiag.Listen))
	var out []uint16
	for _, s := range sockets {
		out = append(out, s.Local.Port())
	}
	return slices.Compact(slices.Sorted(slices.Values(out))), err
}

// Drain begins to watch. Nobody can be told to go elsewhere.
func (p *Plane) Drain(ctx context.Context) error {
	p.begin()
	_, err := p.Activity(ctx)
	return err
}

// Resume ends the watching.
func (p *Plane) Resume(context.Context) error {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger = newLedger(p.o)
	return nil
}

// Activity takes a look.
func (p *Plane) Activity(context.Context) (drain.Activity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.look()
}

// look is one look; mu is held. Whoever looks, a change is told.
func (p *Plane) look() (drain.Activity, error) {
	began := time.Now()
	if p.watch != nil && p.watch.Reports != nil {
		p.ledger.destroyed(p.watch.Ended()) // before the look, which must not show them
	}
	all, err := p.sockets(states)
	if err != nil {
		if !p.failing { // told each time, whoever looks because of it would be told of his own look
			p.failing = true
			p.tell()
		}
		return drain.Activity{}, err
	}
	now := time.Now()
	p.cost = (3*p.cost + now.Sub(began)) / 4
	p.ledger.look(all, now)
	p.resolve(now)
	if a := p.ledger.activity(); a != p.last || p.failing {
		p.last, p.failing = a, false
		p.tell()
	}
	return p.last, nil
}

// sockets asks the kernel. One that has no sock_diag says so only when it is asked.
func (p *Plane) sockets(s sockdiag.States) ([]sockdiag.Socket, error) {
	all, err := p.table.Sockets(s, p.o.Ports)
	if err == nil {
		return all, nil
	}
	if _, already := p.table.(procTable); already || p.last.Known {
		return nil, err // it has answered before, and will again
	}
	_ = p.table.Close()
	p.fallBack(err)
	p.ledger.opaque = true
	return p.table.Sockets(s, p.o.Ports)
}

// resolve asks the kernel's other table about connections of which it is not clear
// who spoke last: once for each time that they fell silent.
func (p *Plane) resolve(now time.Time) {
	doubts := p.ledger.doubts(now)
	if len(doubts) == 0 || p.o.Opaque {
		return
	}
	habits, err := p.kernel.habits(p.o.Ports)
	for _, c := range doubts {
		if c.weighed = true; err == nil {
			c.turn = habits.turn(ends{c.local, c.remote})
		}
	}
}

func (p *Plane) tell() {
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// Changes pushes what the watch sees.
func (p *Plane) Changes() <-chan struct{} { return p.changes }

// CloseIdle cannot close anything.
func (p *Plane) CloseIdle(context.Context, time.Duration) error { return nil }

// StopAccepting cannot stop the app from accepting. Who comes from now on is
// counted no more, and nobody is waited for who is merely between two requests:
// the drain has used up its share, or is over.
func (p *Plane) StopAccepting(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.closed = true
	return nil
}

// Open lists the busy connections: first those that are so for sure, and of them the
// oldest first. In the place of a request line, which the kernel does not know,
// stands why.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing {
		return nil, errors.New("the kernel's socket table cannot be read")
	}
	now := time.Now()
	var busy []*sighting
	for _, c := range p.ledger.seen {
		if c.reason != Idle {
			busy = append(busy, c)
		}
	}
	passing := func(c *sighting) int {
		if c.reason == Moved || c.reason == Doubted || c.reason == Paused {
			return 1
		}
		return 0
	}
	slices.SortFunc(busy, func(a, b *sighting) int {
		return cmp.Or(cmp.Compare(passing(a), passing(b)), a.since().Compare(b.since()), a.remote.Compare(b.remote))
	})
	var out []drain.Conversation
	for _, c := range busy[:min(most, len(busy))] {
		out = append(out, drain.Conversation{
			Peer: c.remote.String(), Protocol: "tcp", Request: "(" + string(c.reason) + ")", Age: drain.Millis(max(0, now.Sub(c.since()))),
		})
	}
	return out, nil
}

// reportMost bounds the conversations of a last call that are named.
const reportMost = 1000

// LastCall says what is open. The app is told by its SIGTERM, which comes next.
func (p *Plane) LastCall(ctx context.Context, _ time.Duration) ([]drain.Conversation, error) {
	open, err := p.Open(ctx, reportMost)
	for i := range open {
		open[i].Ending = "left to the app"
	}
	return open, err
}

// Close ends the watching.
func (p *Plane) Close(context.Context) error {
	p.mu.Lock()
	p.assumed = p.ledger.assumed()
	p.mu.Unlock()
	p.Kill()
	return nil
}

// Kill ends the watching.
func (p *Plane) Kill() {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.table.Close()
}

// Exited is never closed.
func (p *Plane) Exited() <-chan struct{} { return p.exited }
