package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

// Plane serves a handler, and is a drain.DataPlane. It has one http.Server for HTTP/1.1
// and one for HTTP/2, because those say goodbye in different ways: HTTP/1.1 with its next
// response, HTTP/2 by a GOAWAY at any time, which net/http sends in Shutdown.
//
// Every connection is known (client), and every request in flight (conversation).
type Plane struct {
	handler http.Handler
	log     *slog.Logger
	h1      *http.Server
	first   *intake // h1's

	draining atomic.Bool
	refusing atomic.Bool
	arrivals atomic.Uint64
	raced    atomic.Uint64 // requests that met our end of their connection

	mu        sync.Mutex // guards what follows
	listeners []*listener
	h2        *http.Server // of connections that have not been told goodbye, or only by a response
	second    *intake      // h2's
	former    []*http.Server
	clients   map[*client]struct{}
	open      map[*conversation]struct{}
	lingering int
	closeIdle bool
	idleFor   time.Duration
	killed    bool
	failed    error
	bell      chan struct{} // closed and replaced at every change

	changes chan struct{}
	exited  chan struct{}
	owned   sync.WaitGroup // accept loops and servers
	ctx     context.Context
	cancel  context.CancelFunc
}

var _ drain.DataPlane = (*Plane)(nil)

// NewPlane makes a plane that serves handler once it has listeners.
func NewPlane(handler http.Handler, log *slog.Logger) *Plane {
	p := &Plane{
		handler: handler, log: log,
		clients: make(map[*client]struct{}), open: make(map[*conversation]struct{}),
		bell: make(chan struct{}), changes: make(chan struct{}, 1), exited: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.h1, p.first = p.newServer(false)
	p.h2, p.second = p.newServer(true)
	return p
}

// newServer makes a server and starts it.
func (p *Plane) newServer(h2 bool) (*http.Server, *intake) {
	s := &http.Server{
		Handler:     p,
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, clientOf(c))
		},
		ConnState:         p.follow,
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       clientIdleTimeout,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(!h2)
	s.Protocols.SetHTTP2(h2)
	in := newIntake()
	p.owned.Go(func() { _ = s.Serve(in) })
	return s, in
}

// Serve accepts on ln from now on, and closes it in the end; config is nil for clear text.
func (p *Plane) Serve(ln net.Listener, config *tls.Config) {
	l := &listener{Listener: ln, tls: config, done: make(chan struct{})}
	p.mu.Lock()
	p.listeners = append(p.listeners, l)
	p.mu.Unlock()
	p.owned.Go(func() {
		if err := p.accept(l); err != nil {
			p.mu.Lock()
			p.failed = err
			p.mu.Unlock()
			p.exit()
		}
	})
}

// Err is why the plane ended by itself.
func (p *Plane) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

type clientKey struct{}

func clientOf(c net.Conn) *client {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*client)
}

// take begins with a new connection.
func (p *Plane) take(raw net.Conn, config *tls.Config) {
	c := &client{Conn: raw, p: p, fresh: true, idleSince: time.Now()}
	c.outer = c
	if config != nil {
		c.outer = tls.Server(c, config)
	}
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		_ = raw.Close()
		return
	}
	p.clients[c] = struct{}{}
	c.clock = time.AfterFunc(freshTime, func() { p.change(func() { c.fresh = false; p.mayClose(c) }) })
	p.mu.Unlock()
	p.changed()
	if config == nil {
		p.hand(c.outer, func() *intake { return p.first })
		return
	}
	p.owned.Go(func() { p.greet(c) })
}

// greet makes the TLS handshake and hands the connection to the server that speaks what
// has been agreed on.
func (p *Plane) greet(c *client) {
	t := c.outer.(*tls.Conn)
	ctx, cancel := context.WithTimeout(p.ctx, handshakeTimeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		p.log.Debug("TLS handshake", "peer", c.RemoteAddr().String(), "error", err)
		_ = t.Close()
		return
	}
	in := func() *intake { return p.first }
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		p.change(func() { c.h2 = true })
		in = func() *intake { p.mu.Lock(); defer p.mu.Unlock(); return p.second }
	}
	p.hand(t, in)
}

func (p *Plane) hand(c net.Conn, in func() *intake) {
	for {
		to := in()
		select {
		case to.conns <- c:
			return
		case <-p.ctx.Done():
			_ = c.Close()
			return
		case <-to.done: // that server has been told to stop: the next one takes it
			if in() == to {
				_ = c.Close()
				return
			}
		}
	}
}

// follow is told by net/http how a connection fares.
func (p *Plane) follow(conn net.Conn, state http.ConnState) {
	c := clientOf(conn)
	p.change(func() {
		switch state {
		case http.StateActive:
			c.arriving, c.probe = true, false
			if !c.h2 { // for HTTP/2 it is active for a moment before anything has been asked
				c.fresh = false
			}
		case http.StateIdle:
			c.arriving, c.idleSince = false, time.Now()
			p.mayClose(c)
		case http.StateHijacked:
			c.arriving = false
		}
	})
}

// ServeHTTP is for the servers.
func (p *Plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	at, _ := r.Context().Value(clientKey{}).(*client)
	if r.ContentLength < 0 && r.Trailer == nil {
		r.Trailer = http.Header{} // what the server puts there later is seen in copies of r
	}
	c := &conversation{client: at, request: r, began: time.Now(), cancel: cancel}
	if isProbe(r) {
		p.change(func() { at.fresh, at.probe = false, true })
	} else {
		p.begin(c)
		defer p.end(c)
	}
	p.handler.ServeHTTP(&farewell{w, p, c}, r.WithContext(context.WithValue(ctx, conversationKey{}, c)))
}

func (p *Plane) begin(c *conversation) {
	p.arrivals.Add(1)
	p.change(func() {
		p.open[c] = struct{}{}
		c.client.requests++
		c.client.fresh, c.client.probe = false, false
	})
}

func (p *Plane) end(c *conversation) {
	p.change(func() {
		delete(p.open, c)
		c.client.requests-- // it is idle when the answer is out as well: follow
	})
}

// change does f with mu held and tells.
func (p *Plane) change(f func()) {
	p.mu.Lock()
	f()
	p.mu.Unlock()
	p.changed()
}

// changed tells who listens, and who waits.
func (p *Plane) changed() {
	if !p.draining.Load() {
		return
	}
	select {
	case p.changes <- struct{}{}:
	default: // there is one already: merged
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.bell)
	p.bell = make(chan struct{})
}

// forget takes a connection out that has been ended; with lingers its client's end is
// awaited, and gone has to follow. It reports false when all is over anyway.
func (p *Plane) forget(c *client, lingers bool) bool {
	p.mu.Lock()
	delete(p.clients, c)
	c.clock.Stop()
	killed := p.killed
	if lingers && !killed {
		p.lingering++
	}
	p.mu.Unlock()
	p.changed()
	return !killed
}

func (p *Plane) gone() { p.change(func() { p.lingering-- }) }

// Exited is closed when the plane has ended, by itself (see Err) or not.
func (p *Plane) Exited() <-chan struct{} { return p.exited }

func (p *Plane) exit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited:
	default:
		close(p.exited)
	}
}

// errResume: see Resume.
var errResume = errors.New("a gateway's drain is begun by SIGTERM only, which is not taken back")
