package httpdrain

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/phase"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// Options of a Plane. The zero value is valid.
type Options struct {
	// Answer responds, at the last call, to a request without a response. Nil is a 503 in plain text, and UNAVAILABLE for
	// gRPC. It is called in another goroutine than the request's own and must not read the body.
	Answer http.HandlerFunc

	// Uncounted reports whether a request counts neither as busy nor as an arrival, such as a health check
	// (IsHealthCheck). A connection then counts as an arrival from its first request that counts. Nil counts all requests.
	Uncounted func(*http.Request) bool

	// OnShutdown is called when the program has called the server's own Shutdown or Close; the caller should
	// then drain the Plane. Nil: the Plane ends as after Close, without a deadline.
	OnShutdown func()

	// Admit is called with each new connection and returns the connection to serve in its place, or nil to
	// refuse and close it. Nil admits all.
	Admit func(net.Conn) net.Conn
}

// IsHealthCheck reports whether the User-Agent is that of a health check or of a scrape, for Options.Uncounted: they
// arrive until the pod has ended, and must not delay the end. The drain does not wait for a client that pretends to be
// one.
func IsHealthCheck(r *http.Request) bool { return http1.IsProbe([]byte(r.UserAgent())) }

// Plane is an http.Server that can be drained. It implements drain.DataPlane.
type Plane struct {
	o       Options
	server  *http.Server
	handler http.Handler
	state   func(net.Conn, http.ConnState)

	configured func(*http.Server, *tls.Conn, http.Handler) // HTTP/2 of the program, by http2.ConfigureServer; or nil

	draining atomic.Bool
	closing  atomic.Bool // CloseIdle has been called
	called   atomic.Bool // LastCall has
	killed   atomic.Bool

	ownerEnds atomic.Bool  // the program has called the server's own Shutdown or Close
	retries   atomic.Int64 // over how long event streams' clients spread their return, nanoseconds; 0: the default

	mu         phase.State // guards the fields below
	listeners  *listen.Group
	conns      map[*conn]struct{}
	http2      *carrier // nil before the first connection
	arrivals   uint64
	raced      uint64               // see drain.Activity
	lost       []drain.Conversation // cut by the program; see Cut
	idleFor    time.Duration
	drainBegan time.Time
	closeBegan time.Time
	sweeper    *time.Timer   // closes idle connections; nil until CloseIdle
	working    int           // requests whose handlers have not returned
	drained    chan struct{} // the channel of drain.Begun; closed by Drain
	shut       bool          // by the program: the server's own Shutdown or Close

	lingering sync.WaitGroup // connections that wait for their client's FIN; GOAWAY and close frames being written
}

var (
	_ drain.DataPlane = (*Plane)(nil)
	_ drain.Cutter    = (*Plane)(nil)
)

// New takes the server over: it wraps the server's Handler, ConnState, ConnContext and TLSNextProto, and
// the server's own Serve must not be called. Functions of RegisterOnShutdown, which must be registered before
// the drain, are called when the draining phase ends (CloseIdle).
//
// The server's own Shutdown waits for requests in flight as net/http's does, and ends the Plane: see
// Options.OnShutdown.
func New(s *http.Server, o Options) *Plane {
	p := &Plane{
		o: o, server: s, handler: s.Handler, state: s.ConnState,
		drained: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	p.listeners = listen.NewGroup(&p.mu)
	p.handler = cmp.Or[http.Handler](p.handler, http.DefaultServeMux)
	if o.Answer == nil {
		p.o.Answer = unavailable
	}
	s.Handler = http.HandlerFunc(p.serve)
	s.ConnState = p.changed
	inner := s.ConnContext
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if inner != nil {
			ctx = inner(ctx, given(nc))
		}
		return p.connContext(ctx, nc)
	}
	if base := s.BaseContext; base != nil {
		s.BaseContext = func(ln net.Listener) context.Context {
			if w, ok := ln.(*watched); ok {
				ln = w.given
			}
			return base(ln)
		}
	}
	p.takeHTTP2()
	return p
}

// takeHTTP2 makes net/http hand the HTTP/2 connections to the Plane. A program that has switched HTTP/2 off keeps it
// off.
func (p *Plane) takeHTTP2() {
	s := p.server
	_, hasHTTP2 := s.TLSNextProto["h2"]
	withoutTLS := s.Protocols != nil && s.Protocols.UnencryptedHTTP2()
	switch {
	case withoutTLS || s.Protocols != nil && s.Protocols.HTTP2():
	case s.Protocols != nil,
		s.TLSNextProto != nil && !hasHTTP2, // as net/http's TLSNextProto documents
		!hasHTTP2 && strings.Contains(os.Getenv("GODEBUG"), "http2server=0"):
		return
	}
	if s.TLSNextProto == nil {
		s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	p.configured = s.TLSNextProto[unencryptedHTTP2]
	s.TLSNextProto["h2"] = p.serveHTTP2 // also without TLS: otherwise net/http would set up its own
	if withoutTLS {
		s.TLSNextProto[unencryptedHTTP2] = p.serveHTTP2
	}
}

// unencryptedHTTP2 is net/http's own key for HTTP/2 without TLS (golang/go#67816), by which it hands connections to
// golang.org/x/net/http2. It is not documented: TestUnencryptedHTTP2 fails if it changes.
const unencryptedHTTP2 = "unencrypted_http2"

// Serve serves on ln, which it takes over, without TLS unless it is of tls.NewListener. It returns nil after Close or
// Kill, and an error when ln fails before. It may be called for several listeners.
func (p *Plane) Serve(ln net.Listener) error {
	inner, config := underTLS(ln)
	if config == nil {
		return p.serveOn(ln, p.server.Serve)
	}
	return p.serveOn(inner, func(l net.Listener) error { return p.server.Serve(tls.NewListener(l, config)) })
}

// ServeTLS is Serve with the server's TLSConfig, which must have a certificate, unless ln has TLS itself.
func (p *Plane) ServeTLS(ln net.Listener) error {
	if _, config := underTLS(ln); config != nil {
		return p.Serve(ln)
	}
	return p.serveOn(ln, func(l net.Listener) error { return p.server.ServeTLS(l, "", "") })
}

func (p *Plane) serveOn(ln net.Listener, serve func(net.Listener) error) error {
	return p.listeners.Serve(ln, p.accepted, func(l net.Listener) error {
		used := &watched{Listener: l, p: p, given: ln}
		err := serve(used)
		if !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.listeners.HasEnded() || p.shut:
		case used.isUsed.Load():
			p.shut = true
			go p.shutDown()
		default:
			return errors.New("the server was shut down or served before; make a new http.Server")
		}
		return nil
	})
}

// Drain implements drain.DataPlane.
func (p *Plane) Drain(context.Context) error {
	p.draining.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.drained:
	default:
		close(p.drained)
	}
	p.drainBegan = time.Now()
	for c := range p.conns {
		c.answerEarly()
	}
	p.shutHTTP2()
	p.mu.Changed()
	return nil
}

// Resume implements drain.DataPlane. HTTP/2 clients that have got a GOAWAY use their connections no longer.
func (p *Plane) Resume(context.Context) error {
	p.draining.Store(false)
	p.closing.Store(false)
	p.called.Store(false)
	p.mu.Lock()
	p.stopSweeper()
	select {
	case <-p.drained:
		p.drained = make(chan struct{})
	default:
	}
	p.mu.Unlock()
	return p.listeners.Resume()
}

// drainBegins returns the channel of drain.Begun for requests.
func (p *Plane) drainBegins() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drained
}

// StopAccepting implements drain.DataPlane.
func (p *Plane) StopAccepting(ctx context.Context) error { return p.listeners.Stop(ctx) }

// Activity implements drain.DataPlane. It is always known.
func (p *Plane) Activity(context.Context) (drain.Activity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := drain.Activity{Known: true, Connections: len(p.conns), Arrivals: p.arrivals, Raced: p.raced}
	for c := range p.conns {
		if c.isBusy() {
			a.Busy++
		}
	}
	return a, nil
}

// Changes implements drain.DataPlane.
func (p *Plane) Changes() <-chan struct{} { return p.mu.Changes() }

// Exited is drain.DataPlane's: closed when no listener is served any longer, or one has failed.
func (p *Plane) Exited() <-chan struct{} { return p.listeners.Exited() }
