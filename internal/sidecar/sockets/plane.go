package sockets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// DefaultStreamPause is the default of Options.StreamPause: servers send heartbeats every 15 s (the HTML standard's
// advice for event streams).
const DefaultStreamPause = 15 * time.Second

// Options configure a Plane.
type Options struct {
	Ports []uint16 // the app's, at least one, in any order

	// IgnoreFrom are clients that do not count: probes, scrapers. In many clusters a node's own address is also the
	// source of clients that a Service has forwarded over that node.
	IgnoreFrom []netip.Prefix

	Opaque bool // every open connection is busy
	// OpaquePorts are those of Ports whose connections are busy while they are open: HTTP/2, gRPC, WebSocket, TLS, all
	// protocols for which the kernel's counters do not distinguish idle from busy.
	OpaquePorts     []uint16
	MuxedPorts      []uint16      // those of OpaquePorts whose requests linkerd's proxy counts: HTTP/2, gRPC
	Linkerd         uint16        // the admin port of linkerd's proxy, which carries all clients of Ports; 0: none
	LinkerdShutdown bool          // CloseIdle shuts that proxy down
	StreamPause     time.Duration // for which a streaming response may pause before it counts as complete
	IdleGrace       time.Duration // for which a connection is quiet before it is idle
	Log             *slog.Logger  // of problems of the watch itself
}

// table is the kernel's, or a test's.
type table interface {
	Sockets(sockdiag.States, []uint16) ([]sockdiag.Socket, error)
	Close() error
}

// kernel is the plane's view of the machine.
type kernel struct {
	open    func() (table, error)
	watch   func([]uint16) (sockdiag.Reports, error) // of destroyed sockets
	acks    func([]uint16) (acks, error)
	linkerd func(admin uint16, method, path string) ([]byte, error)
}

var thisKernel = kernel{
	open:    func() (table, error) { return sockdiag.OpenTable() },
	watch:   func(ports []uint16) (sockdiag.Reports, error) { return sockdiag.WatchDestroyed(ports) },
	acks:    readAcks,
	linkerd: askAdmin,
}

// Plane is an app without a proxy. It implements drain.DataPlane as far as watching allows.
type Plane struct {
	o      Options
	kernel kernel

	mu      sync.Mutex // guards the fields below
	table   table
	ledger  *ledger
	cost    time.Duration // of one look
	last    drain.Activity
	failing bool
	assumed map[uint16]int // at the end: connections assumed idle, by port
	silent  []uint16       // ports without a listener when the watch began
	watch   *sockdiag.Loop // nil before Drain

	shutdown sync.Once
	changes  chan struct{}
	exited   chan struct{} // never closed: an app that has exited has no connections
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

// fallBack switches to the poorer table, which never shows that a connection is idle.
func (p *Plane) fallBack(why error) {
	p.o.Log.Warn("the kernel does not report traffic here; treating every open connection as busy", "error", why)
	p.table, p.o.Opaque = procTable{}, true
}

// announce logs the watched ports, and ports without a listener.
func (p *Plane) announce() {
	p.o.Log.Info("watching the app's connections", "ports", p.o.Ports, "opaque", p.o.OpaquePorts,
		"all_opaque", p.o.Opaque, "linkerd", p.o.Linkerd)
	listening, err := p.Listening()
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = slices.DeleteFunc(slices.Clone(p.o.Ports),
		func(port uint16) bool { return slices.Contains(listening, port) })
	for _, port := range p.silent {
		p.o.Log.Warn("no listener on this port; is it the app's?", "port", port)
	}
}

// Listening lists those of the ports that have a listener.
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

// Drain begins to watch. Clients cannot be notified.
func (p *Plane) Drain(ctx context.Context) error {
	p.announce()
	p.begin()
	_, err := p.Activity(ctx)
	return err
}

// Resume ends the watch.
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

// look takes one look; mu is held. It always announces a change.
func (p *Plane) look() (drain.Activity, error) {
	began := time.Now()
	p.ledger.destroyed(p.watch.Ended()) // before the look, which must not show them
	all, err := p.sockets(states)
	if err != nil {
		if !p.failing { // announced once: a look that follows the announcement would announce itself again
			p.failing = true
			sockdiag.Notify(p.changes)
		}
		return drain.Activity{}, err
	}
	now := time.Now()
	p.cost = (3*p.cost + now.Sub(began)) / 4
	p.ledger.look(all, now)
	p.resolve(now)
	if a := p.ledger.activity(); a != p.last || p.failing {
		p.last, p.failing = a, false
		sockdiag.Notify(p.changes)
	}
	return p.last, nil
}

// sockets reads the kernel's table. A kernel without sock_diag fails only here.
func (p *Plane) sockets(s sockdiag.States) ([]sockdiag.Socket, error) {
	all, err := p.table.Sockets(s, p.o.Ports)
	if err == nil {
		return all, nil
	}
	if _, already := p.table.(procTable); already || p.last.Known {
		return nil, err // it worked before, and will again
	}
	_ = p.table.Close()
	p.fallBack(err)
	p.ledger.Opaque = true
	return p.table.Sockets(s, p.o.Ports)
}

// resolve reads the kernel's other table for connections where it is unclear which side sent last: once for each time
// that they became silent.
func (p *Plane) resolve(now time.Time) {
	doubts := p.ledger.doubts(now)
	if len(doubts) == 0 || p.o.Opaque {
		return
	}
	acks, err := p.kernel.acks(p.o.Ports)
	for _, c := range doubts {
		if c.weighed = true; err == nil {
			c.turn = acks.turn(ends{c.local, c.remote})
		}
	}
}

// Changes receives after each change that the watch has seen.
func (p *Plane) Changes() <-chan struct{} { return p.changes }

// CloseIdle cannot close the app's connections; linkerd's proxy closes its clients' when it shuts down.
func (p *Plane) CloseIdle(context.Context, time.Duration) (err error) {
	if p.o.LinkerdShutdown {
		p.shutdown.Do(func() { _, err = p.kernel.linkerd(p.o.Linkerd, http.MethodPost, "/shutdown") })
	}
	return err
}

// StopAccepting cannot stop the app from accepting. New connections no longer count, and clients between two requests
// are no longer waited for: the drain has used its share, or has ended.
func (p *Plane) StopAccepting(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.closed = true
	return nil
}

// Open lists the busy connections: first those that are certainly busy, and of them the oldest first. The reason takes
// the place of a request line, which the kernel does not have.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing {
		return nil, errors.New("cannot read the kernel's socket table")
	}
	now := time.Now()
	var busy []*sighting
	for _, c := range p.ledger.seen {
		if c.reason != Idle {
			busy = append(busy, c)
		}
	}
	passing := map[Reason]int{Moved: 1, Doubted: 1, Paused: 1}
	slices.SortFunc(busy, func(a, b *sighting) int {
		return cmp.Or(cmp.Compare(passing[a.reason], passing[b.reason]), a.since().Compare(b.since()),
			a.remote.Compare(b.remote))
	})
	var out []drain.Conversation
	for _, c := range busy[:min(most, len(busy))] {
		out = append(out, drain.Conversation{
			Peer: c.remote.String(), Protocol: "tcp", Request: "(" + string(c.reason) + ")",
			Age: drain.Millis(max(0, now.Sub(c.since()))),
		})
	}
	return out, nil
}

// maxReport bounds the list of connections in the report.
const maxReport = 1000

// LastCall returns the open connections. The app's SIGTERM follows.
func (p *Plane) LastCall(ctx context.Context, _ time.Duration) ([]drain.Conversation, error) {
	open, err := p.Open(ctx, maxReport)
	for i := range open {
		open[i].Ending = drain.LeftToApp
	}
	return open, err
}

// Close ends the watch.
func (p *Plane) Close(context.Context) error {
	p.mu.Lock()
	p.assumed = p.ledger.assumed()
	p.mu.Unlock()
	p.Kill()
	return nil
}

// Assumed lists the report's assumptions once the plane has been closed: that the app was the last to send on a
// connection does not prove that its response is complete.
func (p *Plane) Assumed() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range p.silent {
		out = append(out, fmt.Sprintf("port %d: assumed to be the app's, although no process listened on it", port))
	}
	for _, port := range slices.Sorted(maps.Keys(p.assumed)) {
		out = append(out, fmt.Sprintf("port %d: HTTP/1.1, one request at a time; open connections on which the app was "+
			"the last to send, taken for idle: %d", port, p.assumed[port]))
	}
	return out
}

// Warnings lists reasons to doubt the report: if the app listens on another port, none of its requests was seen.
func (p *Plane) Warnings() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range p.silent {
		out = append(out, fmt.Sprintf("no process listened on port %d when the drain began: set the app's own ports", port))
	}
	return out
}

// Kill ends the watch.
func (p *Plane) Kill() {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.table.Close()
}

// Exited is never closed.
func (p *Plane) Exited() <-chan struct{} { return p.exited }
