package grpcdrain

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/phase"
)

// Options of a Plane. The zero value is usable.
type Options struct {
	// Uncounted reports whether calls of a method ("/package.Service/Method") do not count, neither as
	// busy nor as arrivals. Such streams end when idle connections are closed. Nil leaves out
	// the health service, whose clients call for as long as the server listens.
	Uncounted func(fullMethod string) bool

	// Health is the server's health service, a *health.Server, or nil. It is set to NOT_SERVING when the listeners close.
	Health interface {
		Shutdown() // every service: NOT_SERVING
		Resume()   // every service: SERVING
	}

	// NotServingAtDrain sets Health to NOT_SERVING as soon as the drain begins.
	NotServingAtDrain bool
}

// Plane is a gRPC server that can be drained. It implements drain.DataPlane.
type Plane struct {
	newServer func(...grpc.ServerOption) *grpc.Server
	options   Options

	mu          phase.State // guards the fields below
	listeners   *listen.Group
	current     *generation // serves new connections; nil before the first since the last retirement
	spare       *generation // made ahead; nil once used
	generations map[*generation]struct{}
	conns       map[*conn]struct{}
	byAddr      map[net.Addr]*conn // by the identity of the address that calls see
	calls       map[*call]struct{}
	arrivals    uint64
	waiting     int           // connections that no server has yet
	working     int           // handlers that have not returned
	drained     chan struct{} // the channel of Draining; closed by Drain
	draining    bool
	closing     bool // CloseIdle has been called
	called      bool // LastCall has been called
}

var _ drain.DataPlane = (*Plane)(nil)

// New returns a Plane that serves with the servers that newServer makes. newServer must pass opts to
// grpc.NewServer and register the services; it is called twice in New and again during a drain.
// The Plane calls Serve, GracefulStop and Stop of these servers; nothing else may. Handlers that are
// registered by hand must call the interceptor that they are given.
func New(newServer func(opts ...grpc.ServerOption) *grpc.Server, o Options) *Plane {
	if o.Uncounted == nil {
		o.Uncounted = func(method string) bool { return strings.HasPrefix(method, "/grpc.health.v1.Health/") }
	}
	p := &Plane{
		newServer:   newServer,
		options:     o,
		generations: map[*generation]struct{}{},
		conns:       map[*conn]struct{}{},
		byAddr:      map[net.Addr]*conn{},
		calls:       map[*call]struct{}{},
		drained:     make(chan struct{}),
	}
	p.listeners = listen.NewGroup(&p.mu)
	first := p.newGeneration()
	p.spare = p.newGeneration()
	p.begin(first)
	return p
}

// Serve serves on ln, which it takes over. It returns nil after Close or Kill, and an error when ln
// fails before. It may be called for several listeners.
func (p *Plane) Serve(ln net.Listener) error { return p.listeners.Serve(ln, p.accepted, p.accept) }

// accept hands each connection to a server until the listener ends.
func (p *Plane) accept(l net.Listener) error {
	for {
		nc, err := l.Accept()
		var temporary interface{ Temporary() bool } // such as EMFILE; grpc.Server.Serve also retries
		switch {
		case errors.As(err, &temporary) && temporary.Temporary():
			time.Sleep(5 * time.Millisecond)
		case err != nil:
			return err
		default:
			p.serve(nc.(*conn))
		}
	}
}

// Drain implements drain.DataPlane.
func (p *Plane) Drain(context.Context) error {
	p.mu.Lock()
	if !p.draining {
		p.draining = true
		close(p.drained)
		p.retireCurrent()
		p.mu.Changed()
	}
	p.mu.Unlock()
	if p.options.NotServingAtDrain {
		p.setHealth(false)
	}
	return nil
}

// Resume implements drain.DataPlane. Connections that have been sent a GOAWAY still end with their calls.
func (p *Plane) Resume(context.Context) error {
	p.mu.Lock()
	if p.draining {
		p.drained = make(chan struct{})
	}
	p.draining, p.closing, p.called = false, false, false
	p.mu.Unlock()
	err := p.listeners.Resume()
	p.setHealth(true)
	return err
}

func (p *Plane) setHealth(serving bool) {
	switch h := p.options.Health; {
	case h == nil:
	case serving:
		h.Resume()
	default:
		h.Shutdown()
	}
}

// Activity implements drain.DataPlane. It is always known.
func (p *Plane) Activity(context.Context) (drain.Activity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := drain.Activity{Known: true, Connections: len(p.conns), Arrivals: p.arrivals}
	busy := map[*conn]bool{}
	for c := range p.calls {
		if c.counts && !busy[c.conn] {
			busy[c.conn] = c.conn != nil // of an unknown connection each call counts
			a.Busy++
		}
	}
	return a, nil
}

// Changes implements drain.DataPlane.
func (p *Plane) Changes() <-chan struct{} { return p.mu.Changes() }

// Exited implements drain.DataPlane. It is also closed when a listener has failed.
func (p *Plane) Exited() <-chan struct{} { return p.listeners.Exited() }
