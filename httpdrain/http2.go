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

	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// carrier is a second http.Server, which serves the HTTP/2 connections after the real server has completed their
// handshake, as if there were no TLS, so that frames of our own can be inserted between the server's.
type carrier struct {
	*http.Server
	feed *listen.Feed
}

func (p *Plane) newCarrier() *carrier {
	real := p.server
	c := &carrier{feed: listen.NewFeed(), Server: &http.Server{
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

		DisableGeneralOptionsHandler: real.DisableGeneralOptionsHandler,
	}}
	c.Protocols.SetUnencryptedHTTP2(true)
	serve := p.configured
	if serve == nil {
		none := listen.NewFeed()
		_ = none.Close()
		_ = c.Serve(none) // returns at once, and has set TLSNextProto
		serve = c.TLSNextProto[unencryptedHTTP2]
	}
	asReal := func(_ *http.Server, tc *tls.Conn, h http.Handler) { serve(real, tc, h) }
	c.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": asReal, unencryptedHTTP2: asReal}
	p.lingering.Go(func() { _ = c.Serve(c.feed) })
	return c
}

// serveHTTP2 is the server's TLSNextProto. The connection ends when it returns. A connection without TLS is wrapped by
// net/http, which has read its preface.
func (p *Plane) serveHTTP2(_ *http.Server, tc *tls.Conn, _ http.Handler) {
	h := &http2Conn{Conn: tc, over: make(chan struct{}), begin: []byte{}, streams: newStreams(time.Now)}
	if clear, ok := tc.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
		h.Conn = clear.UnencryptedNetConn()
		h.unread, h.begin = http2.Preface, []byte(http2.Preface)
	} else {
		state := tc.ConnectionState()
		h.tls = &state
		h.client.Skip = len(http2.Preface)
	}
	c := connOf(h.Conn)
	h.c = c
	p.mu.Lock()
	if p.listeners.HasEnded() {
		p.mu.Unlock()
		return
	}
	if p.http2 == nil {
		p.http2 = p.newCarrier()
	}
	c.h2, c.outer = h, h
	h.shutLocked()
	feed := p.http2.feed
	p.mu.Unlock()
	if feed.Give(h) {
		<-h.over
	}
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
	begin   []byte        // the client's first bytes, up to the end of its SETTINGS; nil afterwards; for the reader only
	flooded atomic.Bool   // too many streams were reset by the server
	streams *streams

	// Guarded by the Plane's mu.
	closing http2.Closing
	check   *time.Timer // calls shutLocked; nil before

	mu       sync.Mutex    // guards the fields below; held over writes
	server   http2.Tracker // of the written bytes
	spoke    bool          // SETTINGS, which must be the first frame, is complete
	inHeads  bool          // CONTINUATION must follow
	announce bool          // the first GOAWAY is due at the next boundary between frames
	ended    bool          // the last GOAWAY, or the server's own, is written
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
	h.recognize(b[:n])
	for rest, whole := h.client.Next(b[:n]); whole; rest, whole = h.client.Next(rest) {
		switch err := h.streams.fromClient(h.client.Frame()); {
		case errors.Is(err, net.ErrClosed):
			return 0, err
		case err != nil:
			return 0, h.refuse(err)
		}
	}
	return n, err
}

// recognize takes the first bytes of the client, which its SETTINGS begin (RFC 9113, 3.4).
func (h *http2Conn) recognize(b []byte) {
	if h.begin == nil {
		return
	}
	h.begin = append(h.begin, b...)
	settings, whole := http2.FirstSettings(h.begin)
	if !whole {
		return
	}
	h.begin = nil
	p := h.c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	h.closing.Client = http2.ClientBySettings(settings)
}

// refuse ends the connection of an abusive client with a GOAWAY that has the reason. Bytes that the client still sends
// are read for a while, because a reset would destroy the GOAWAY.
func (h *http2Conn) refuse(why error) error {
	h.c.unread.Store(true)
	_ = h.Conn.SetWriteDeadline(time.Now().Add(lingerTime)) // a Write may be waiting for a client that does not read
	h.goAway(http2.EnhanceYourCalm)
	return fmt.Errorf("connection of %s ended: %w", h.RemoteAddr(), why)
}

func (h *http2Conn) Write(b []byte) (int, error) {
	n, err := h.write(b)
	if p := h.c.p; (p.draining.Load() || p.closing.Load()) && h.streams.open() == 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		h.shutLocked()
	}
	return n, err
}

func (h *http2Conn) write(b []byte) (int, error) {
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
			h.ended = true
		}
		if flood := h.streams.fromServer(at, h.server.Code()); flood != nil {
			err = flood
		}
	}
	return err
}

// shutLocked continues the closing of the connection. The Plane's mu is held.
func (h *http2Conn) shutLocked() {
	c, p := h.c, h.c.p
	if _, open := p.conns[c]; !open || p.listeners.HasEnded() || !p.draining.Load() && !p.closing.Load() {
		return
	}
	m := http2.Moment{Open: h.streams.open(), Draining: time.Since(p.drainBegan)}
	if c.state == http.StateActive {
		m.Open = max(m.Open, 1)
	}
	if m.Open == 0 {
		m.Idle = time.Since(c.since)
	}
	if p.closing.Load() {
		m.Closing = time.Since(p.closeBegan)
	}
	finish, again := false, time.Duration(0)
	switch {
	case p.called.Load():
		finish = true
	case !c.hadRequest && m.Closing > 0:
		again = time.Until(c.began.Add(freshTime))
		finish = again <= 0
	case !c.hadRequest:
	default:
		var due http2.Step
		due, again = h.closing.Next(m)
		if finish = due == http2.End; due == http2.Announce {
			p.lingering.Go(func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.announce = true
				h.announceLocked()
			})
		}
	}
	if finish && !c.isBusy() && h.streams.endIfIdle() {
		p.closeIdle(c)
	}
	switch {
	case again <= 0:
	case h.check != nil:
		h.check.Reset(again)
	default:
		h.check = time.AfterFunc(again, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			h.shutLocked()
		})
	}
}

// goAway sends the GOAWAY that names the last stream, if the server is not within a header block.
func (h *http2Conn) goAway(code http2.ErrCode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.canInsert() {
		h.ended = true
		_, _ = h.Conn.Write(http2.AppendGoAway(nil, h.streams.latest(), code, ""))
	}
}

// canInsert reports whether the server is between two frames.
func (h *http2Conn) canInsert() bool { return h.spoke && h.server.AtBoundary() && !h.inHeads }

func (h *http2Conn) announceLocked() {
	if h.announce && !h.ended && h.canInsert() {
		h.announce = false
		_, _ = h.Conn.Write(http2.AppendAnnouncement(nil)) // on an error the client is gone
	}
}
