package httpdrain

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// carrier serves HTTP/2 connections whose handshake the real server has done: an http.Server of its own,
// which is handed them as if they came in clear. So its Shutdown sends them the GOAWAY that names their last
// stream, while the real server goes on, and frames of ours can go in between its own.
type carrier struct {
	server *http.Server
	feed   *feed
	isOver bool // end has been called; guarded by Plane.mu
}

func (p *Plane) newCarrier() *carrier {
	real := p.server
	c := &carrier{feed: newFeed(), server: &http.Server{
		Handler:           real.Handler,
		ReadTimeout:       real.ReadTimeout,
		ReadHeaderTimeout: real.ReadHeaderTimeout,
		WriteTimeout:      real.WriteTimeout,
		IdleTimeout:       real.IdleTimeout,
		MaxHeaderBytes:    real.MaxHeaderBytes,
		ConnState:         real.ConnState,
		ConnContext:       func(ctx context.Context, nc net.Conn) context.Context { return connOf(nc).ctx },
		ErrorLog:          real.ErrorLog,
		HTTP2:             real.HTTP2,
		Protocols:         new(http.Protocols),
	}}
	c.server.Protocols.SetUnencryptedHTTP2(true)
	p.lingering.Go(func() { _ = c.server.Serve(c.feed) })
	return c
}

// end sends each connection its last GOAWAY: it closes with its last stream.
func (c *carrier) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // to wait for the connections is the Plane's
	_ = c.server.Shutdown(ctx)
}

// endAgain is called when the carrier begins to serve c; mu is held. A connection that was on
// its way when the carrier ended is not among those that Shutdown has told: the server takes it
// in later, and it would stay until its client goes.
func (p *Plane) endAgain(c *conn) {
	if to := c.carrier; to != nil && to.isOver && !c.told {
		c.told = true
		p.lingering.Go(to.end)
	}
}

// endHTTP2 ends what there is; mu is held.
func (p *Plane) endHTTP2() {
	if c := p.http2; c != nil && !c.isOver {
		c.isOver = true
		p.lingering.Go(c.end)
	}
}

// endLate ends a carrier that was made while idle connections are closed. Who asks before
// is told goodbye with the answer; who does not must not stay.
func (p *Plane) endLate(c *carrier) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Load() && p.http2 == c {
		p.endHTTP2()
	}
}

// feed is a carrier's listener.
type feed struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newFeed() *feed { return &feed{conns: make(chan net.Conn), done: make(chan struct{})} }

func (f *feed) Addr() net.Addr { return &net.TCPAddr{} }

func (f *feed) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

func (f *feed) Accept() (net.Conn, error) {
	select {
	case nc := <-f.conns:
		return nc, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// serveHTTP2 is the server's TLSNextProto. The connection ends when it returns. One in clear
// comes in a wrapping of net/http's, without its preface, which has been read.
func (p *Plane) serveHTTP2(_ *http.Server, tc *tls.Conn, _ http.Handler) {
	h := &http2Conn{Conn: tc, over: make(chan struct{}), resets: newResets(time.Now)}
	if clear, ok := tc.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
		h.Conn = clear.UnencryptedNetConn()
		h.unread = http2.Preface
	} else {
		state := tc.ConnectionState()
		h.tls = &state
		h.client.Skip = len(http2.Preface)
	}
	c := connOf(h.Conn)
	h.c = c
	for fed := false; !fed; {
		p.mu.Lock()
		if p.ended {
			p.mu.Unlock()
			return
		}
		if p.http2 == nil || p.http2.isOver {
			p.http2 = p.newCarrier() // what is over takes no other
		}
		c.h2, c.outer, c.carrier = h, h, p.http2
		f := p.http2.feed
		if to := p.http2; p.closing.Load() {
			time.AfterFunc(freshTime, func() { p.endLate(to) })
		}
		p.mu.Unlock()
		select {
		case f.conns <- h:
			fed = true
		case <-f.done:
		}
	}
	<-h.over
}

// http2Conn follows the server's frames, so that a goodbye can go in between.
type http2Conn struct {
	net.Conn // its ConnectionState hidden, because net/http would take it for HTTP/1.1
	c        *conn
	tls      *tls.ConnectionState // nil in clear
	unread   string               // of the preface; the reader's
	once     sync.Once
	over     chan struct{} // closed by Close

	client  http2.Tracker // the reader's
	flooded atomic.Bool   // the server has had to reset too many streams
	resets  *resets

	mu       sync.Mutex    // guards what follows; held over writes
	server   http2.Tracker // of what is written
	spoke    bool          // a frame is complete: SETTINGS, which must be the first
	inHeads  bool          // CONTINUATION must come next
	shutdown http2.Shutdown
}

func (h *http2Conn) Close() error {
	defer h.once.Do(func() { close(h.over) })
	return h.Conn.Close()
}

func (h *http2Conn) Read(b []byte) (int, error) {
	if h.unread != "" {
		n := copy(b, h.unread)
		h.unread = h.unread[n:]
		return n, nil
	}
	n, err := h.Conn.Read(b)
	if h.flooded.Load() {
		return 0, h.refuse(http2.FloodResets)
	}
	for rest, whole := h.client.Next(b[:n]); whole; rest, whole = h.client.Next(rest) {
		if flood := h.resets.fromClient(h.client.Frame()); flood != nil {
			return 0, h.refuse(flood)
		}
	}
	return n, err
}

// refuse ends the connection with a GOAWAY that says why, for a client that asks too much. What the client still
// sends is read for a while, so that a reset does not take the GOAWAY with it.
func (h *http2Conn) refuse(why error) error {
	h.c.unread.Store(true)
	_ = h.Conn.SetWriteDeadline(time.Now().Add(lingerTime)) // for a Write that waits for a client that does not read
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server.AtBoundary() && !h.inHeads {
		h.shutdown = http2.Final
		_, _ = h.Conn.Write(http2.AppendGoAway(nil, h.resets.latest(), http2.EnhanceYourCalm, ""))
	}
	return fmt.Errorf("connection of %s ended: %w", h.RemoteAddr(), why)
}

func (h *http2Conn) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.Conn.Write(b)
	if flood := h.follow(b[:n]); flood != nil {
		h.flooded.Store(true) // the reader ends the connection
		_ = h.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	if err == nil {
		h.sayLocked()
	}
	return n, err
}

// follow keeps track of where frames end. An error is too much.
func (h *http2Conn) follow(b []byte) (err error) {
	for rest, whole := h.server.Next(b); whole; rest, whole = h.server.Next(rest) {
		h.spoke = true
		at := h.server.Frame()
		switch at.Type {
		case http2.Headers, http2.PushPromise, http2.Continuation:
			h.inHeads = !at.Has(http2.FlagEndHeaders)
		case http2.GoAway:
			h.shutdown = http2.Final // the server's own
		}
		if flood := h.resets.fromServer(at, h.server.Code()); flood != nil {
			err = flood
		}
	}
	return err
}

// sayGoodbye says it at the next boundary between frames.
func (h *http2Conn) sayGoodbye() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shutdown == http2.NotBegun {
		h.shutdown = http2.Pending
	}
	h.sayLocked()
}

func (h *http2Conn) sayLocked() {
	if h.shutdown == http2.Pending && h.spoke && h.server.AtBoundary() && !h.inHeads {
		h.shutdown = http2.Announced
		_, _ = h.Conn.Write(http2.AppendAnnouncement(nil)) // on an error the client is gone
	}
}
