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

// carrier is a second http.Server, which serves the HTTP/2 connections after the real server has completed their
// handshake, as if there were no TLS. Its Shutdown sends the GOAWAY that names the last stream, while the real server
// continues, and frames of our own can be inserted between the server's.
type carrier struct {
	server *http.Server
	feed   *feed
	isOver bool // end has been called; guarded by Plane.mu
}

func (p *Plane) newCarrier() *carrier {
	real := p.server
	c := &carrier{feed: &feed{conns: make(chan net.Conn), done: make(chan struct{})}, server: &http.Server{
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

// end sends each connection its last GOAWAY. The connection closes with its last stream.
func (c *carrier) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the Plane waits for the connections, not Shutdown
	_ = c.server.Shutdown(ctx)
}

// endAgain is called when the carrier begins to serve c; mu is held. Shutdown misses a connection that registers
// after it: it would stay open until its client closes it.
func (p *Plane) endAgain(c *conn) {
	if to := c.carrier; to != nil && to.isOver && !c.carrierEnded {
		c.carrierEnded = true
		p.lingering.Go(to.end)
	}
}

// endHTTP2 ends the current carrier; mu is held.
func (p *Plane) endHTTP2() {
	if c := p.http2; c != nil && !c.isOver {
		c.isOver = true
		p.lingering.Go(c.end)
	}
}

// endLate ends a carrier that was made while idle connections are closed. A client that sends a request before gets its
// GOAWAY with the response; one that does not must not keep its connection.
func (p *Plane) endLate(c *carrier) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Load() && p.http2 == c {
		p.endHTTP2()
	}
}

// feed is the listener of a carrier.
type feed struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

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

// serveHTTP2 is the server's TLSNextProto. The connection ends when it returns. A connection without TLS is wrapped by
// net/http, which has read its preface.
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
			p.http2 = p.newCarrier() // one that has ended takes no more connections
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

// http2Conn follows the server's frames, so that a GOAWAY can be inserted between them.
type http2Conn struct {
	net.Conn // without its ConnectionState, by which net/http would take it for HTTP/1.1
	c        *conn
	tls      *tls.ConnectionState // nil without TLS
	unread   string               // rest of the preface; for the reader only
	once     sync.Once
	over     chan struct{} // closed by Close

	client  http2.Tracker // for the reader only
	flooded atomic.Bool   // too many streams were reset by the server
	resets  *resets

	mu       sync.Mutex    // guards what follows; held over writes
	server   http2.Tracker // of what is written
	spoke    bool          // SETTINGS, which must be the first frame, is complete
	inHeads  bool          // CONTINUATION must follow
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

// refuse ends the connection of an abusive client with a GOAWAY that has the reason. Bytes that the client still sends
// are read for a while, because a reset would destroy the GOAWAY.
func (h *http2Conn) refuse(why error) error {
	h.c.unread.Store(true)
	_ = h.Conn.SetWriteDeadline(time.Now().Add(lingerTime)) // a Write may be waiting for a client that does not read
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
		h.announceLocked()
	}
	return n, err
}

// follow keeps track of where frames end. An error ends the connection.
func (h *http2Conn) follow(b []byte) (err error) {
	for rest, whole := h.server.Next(b); whole; rest, whole = h.server.Next(rest) {
		h.spoke = true
		at := h.server.Frame()
		switch at.Type {
		case http2.Headers, http2.PushPromise, http2.Continuation:
			h.inHeads = !at.Has(http2.FlagEndHeaders)
		case http2.GoAway:
			h.shutdown = http2.Final // the server's own GOAWAY
		}
		if flood := h.resets.fromServer(at, h.server.Code()); flood != nil {
			err = flood
		}
	}
	return err
}

// announce sends the GOAWAY that refuses nothing, at the next boundary between frames.
func (h *http2Conn) announce() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shutdown == http2.NotBegun {
		h.shutdown = http2.Pending
	}
	h.announceLocked()
}

func (h *http2Conn) announceLocked() {
	if h.shutdown == http2.Pending && h.spoke && h.server.AtBoundary() && !h.inHeads {
		h.shutdown = http2.Announced
		_, _ = h.Conn.Write(http2.AppendAnnouncement(nil)) // on an error the client is gone
	}
}
