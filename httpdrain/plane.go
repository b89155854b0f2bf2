package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
)

// Options of a Plane. The zero value will do.
type Options struct {
	// Answer is what a request without an answer gets at the last call; nil is a 503 in
	// plain text, and UNAVAILABLE for gRPC. It is called in another goroutine than the
	// request's own and may not read the body.
	Answer http.HandlerFunc

	// Uncounted says which requests do not count, neither as busy nor as arrivals: health
	// checks, which come for as long as somebody listens. A connection is an arrival by its
	// first request that counts, then. Nil counts all.
	Uncounted func(*http.Request) bool

	// Admit is called with each new connection, and returns what is to be served in its place; nil refuses
	// it, and it is closed. Nil admits all.
	Admit func(net.Conn) net.Conn
}

// Plane is an http.Server that can be drained. It implements drain.DataPlane.
type Plane struct {
	server  *http.Server
	handler http.Handler
	state   func(net.Conn, http.ConnState)
	answer  http.HandlerFunc
	ignored func(*http.Request) bool
	admit   func(net.Conn) net.Conn
	choosy  bool // not every request counts, so that connections do not count by themselves

	draining atomic.Bool
	closing  atomic.Bool // CloseIdle has been called
	called   atomic.Bool // LastCall has
	killed   atomic.Bool

	mu        sync.Mutex // guards what follows
	listeners []*listen.Listener
	conns     map[*conn]struct{}
	http2     *carrier // nil before the first connection
	arrivals  uint64
	idleFor   time.Duration
	sweeper   *time.Timer   // closes what becomes idle; nil until CloseIdle
	left      chan struct{} // closed when there is nothing left; nil when nobody waits
	working   int           // requests whose handlers have not returned
	ended     bool          // by Close or Kill
	serving   int           // Serve's that have not returned
	over      bool          // exited is closed

	lingering sync.WaitGroup // connections that wait for their client's FIN, and goodbyes
	changes   chan struct{}
	exited    chan struct{}
}

var _ drain.DataPlane = (*Plane)(nil)

// New takes the server over: its Handler, ConnState, ConnContext and TLSNextProto are the Plane's
// from now on (what was there goes on to be called), and its own Serve, Shutdown and Close are not
// to be called.
func New(s *http.Server, o Options) *Plane {
	p := &Plane{
		server: s, handler: s.Handler, state: s.ConnState, answer: o.Answer, ignored: o.Uncounted, admit: o.Admit, choosy: o.Uncounted != nil,
		conns:   map[*conn]struct{}{},
		changes: make(chan struct{}, 1),
		exited:  make(chan struct{}),
	}
	if p.handler == nil {
		p.handler = http.DefaultServeMux
	}
	if p.answer == nil {
		p.answer = unavailable
	}
	if p.ignored == nil {
		p.ignored = func(*http.Request) bool { return false }
	}
	s.Handler = http.HandlerFunc(p.serve)
	s.ConnState = p.changed
	inner := s.ConnContext
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if inner != nil {
			ctx = inner(ctx, nc)
		}
		return p.connContext(ctx, nc)
	}
	if s.Protocols == nil || s.Protocols.HTTP2() {
		if s.TLSNextProto == nil {
			s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		}
		s.TLSNextProto["h2"] = p.serveHTTP2
		if s.Protocols != nil && s.Protocols.UnencryptedHTTP2() {
			s.TLSNextProto["unencrypted_http2"] = p.serveHTTP2
		}
	}
	return p
}

// Serve serves on ln, which it takes over, in clear. It returns nil after Close or Kill, and an
// error when ln breaks before. It may be called for several listeners.
func (p *Plane) Serve(ln net.Listener) error { return p.serveOn(ln, p.server.Serve) }

// ServeTLS is Serve with the server's TLSConfig, which has to bring the certificate.
func (p *Plane) ServeTLS(ln net.Listener) error {
	return p.serveOn(ln, func(l net.Listener) error { return p.server.ServeTLS(l, "", "") })
}

func (p *Plane) serveOn(ln net.Listener, serve func(net.Listener) error) error {
	l := listen.New(ln, listen.Open, p.accepted)
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		_ = ln.Close()
		return nil
	}
	p.listeners = append(p.listeners, l)
	p.serving++
	p.mu.Unlock()
	err := serve(l)
	_ = l.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving--
	if p.ended && errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	if err != nil || p.ended && p.serving == 0 {
		p.exit()
	}
	if err != nil {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}

// exit closes exited; mu is held.
func (p *Plane) exit() {
	if !p.over {
		p.over = true
		close(p.exited)
	}
}

// Drain is drain.DataPlane's.
func (p *Plane) Drain(context.Context) error {
	p.draining.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.h2 != nil && c.asked {
			p.lingering.Go(c.h2.sayGoodbye)
		}
	}
	p.tell()
	return nil
}

// Resume is drain.DataPlane's. HTTP/2 connections that have been told goodbye stay so.
func (p *Plane) Resume(context.Context) error {
	p.draining.Store(false)
	p.closing.Store(false)
	p.called.Store(false)
	p.mu.Lock()
	listeners := p.listeners
	if p.sweeper != nil {
		p.sweeper.Stop()
		p.sweeper = nil
	}
	p.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Resume())
	}
	return errors.Join(errs...)
}

// Activity is drain.DataPlane's. It is always known.
func (p *Plane) Activity(context.Context) (drain.Activity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := drain.Activity{Known: true, Connections: len(p.conns), Arrivals: p.arrivals}
	for c := range p.conns {
		if c.isBusy() {
			a.Busy++
		}
	}
	return a, nil
}

// Changes is drain.DataPlane's.
func (p *Plane) Changes() <-chan struct{} { return p.changes }

// tell says that something has changed; mu is held.
func (p *Plane) tell() {
	if len(p.conns) == 0 && p.working == 0 && p.left != nil {
		close(p.left)
		p.left = nil
	}
	if p.draining.Load() {
		select {
		case p.changes <- struct{}{}:
		default:
		}
	}
}

// Exited is drain.DataPlane's: closed when nothing serves any more, or a listener has broken.
func (p *Plane) Exited() <-chan struct{} { return p.exited }
