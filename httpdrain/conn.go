package httpdrain

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// lingerTime is how long to wait for the client's FIN after ours.
const lingerTime = time.Second

// freshTime is how long a new connection may take for its first request, and a begun head for its end, when idle
// connections are closed.
const freshTime = time.Second

// ErrLastCall is the cause (context.Cause) of the end of requests' contexts at the last call.
var ErrLastCall = drain.ErrLastCall

// conn is a client's connection, below TLS.
type conn struct {
	net.Conn
	p      *Plane
	began  time.Time
	ctx    context.Context         // parent of its requests' contexts; set before the first
	cancel context.CancelCauseFunc // of ctx; as ctx
	outer  net.Conn                // the TLS connection over it, or itself; as ctx

	heard   atomic.Bool  // a byte has been read
	left    atomic.Bool  // the client has ended its side
	partial atomic.Int64 // when the first byte since the latest response was read, Unix nanoseconds; 0: none was
	unread  atomic.Bool  // the connection ends with a response to a request that was not read to its end
	reading sync.Mutex   // held while a read waits

	delimited atomic.Bool // the body of the latest response ends with the connection
	torn      atomic.Bool // it is truncated: see tear

	closeMu sync.Mutex // guards closed, and deadlines against it
	closed  bool

	// Guarded by p.mu.
	state      http.ConnState
	since      time.Time // of state
	h2         *http2Conn
	hadRequest bool // it has had a request
	ignored    bool // its latest request does not count
	leaves     bool // the handler has returned and left a part of the latest request's body unread
	requests   map[*exchange]struct{}
	hijacked   *exchange
}

type connKey struct{}

// accepted registers a new connection. It returns nil if Options.Admit refuses it.
func (p *Plane) accepted(nc net.Conn) net.Conn {
	if p.admit != nil {
		admitted := p.admit(nc)
		if admitted == nil {
			_ = nc.Close()
			return nil
		}
		nc = admitted
	}
	c := &conn{Conn: nc, p: p, began: time.Now(), requests: map[*exchange]struct{}{}, cancel: func(error) {}}
	c.outer, c.since = c, c.began
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	p.mu.Changed()
	p.sweepSoon()
	return c
}

// connOf returns the conn below a connection of net/http's.
func connOf(nc net.Conn) *conn {
	switch c := nc.(type) {
	case *conn:
		return c
	case *http2Conn:
		return c.c
	case *tls.Conn:
		own, _ := c.NetConn().(*conn)
		return own
	}
	return nil
}

func (p *Plane) connContext(ctx context.Context, nc net.Conn) context.Context {
	c := connOf(nc)
	if c == nil {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(drain.WithBegun(ctx, p.drainBegins), connKey{}, c))
	p.mu.Lock()
	defer p.mu.Unlock()
	c.outer, c.ctx, c.cancel = nc, ctx, cancel
	return ctx
}

// changed is the server's ConnState.
func (p *Plane) changed(nc net.Conn, s http.ConnState) {
	if p.state != nil {
		p.state(nc, s)
	}
	c := connOf(nc)
	if c == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == http.StateClosed {
		p.gone(c)
		return
	}
	if c.state == s {
		return
	}
	c.state, c.since, c.ignored, c.leaves = s, time.Now(), false, false
	if s == http.StateIdle {
		c.delimited.Store(false) // net/http has added a length
		c.partial.Store(0)
	}
	if _, open := p.conns[c]; open && s == http.StateIdle { // a closed one becomes idle with its last stream
		switch {
		case c.h2 != nil:
			c.h2.shutLocked()
		case c.unread.Load(): // answerEarly was too late for a Connection: close
			p.closeIdle(c)
		}
	}
	p.mu.Changed()
	p.sweepSoon()
}

// gone forgets a connection; mu is held.
func (p *Plane) gone(c *conn) {
	if _, ok := p.conns[c]; !ok {
		return
	}
	delete(p.conns, c)
	c.cancel(nil)
	p.mu.Changed()
}

// isBusy reports whether a request is in flight, from its first byte (HTTP/1.1) or its HEADERS (HTTP/2) to the last
// byte of the response. A hijacked connection is always busy. p.mu is held.
func (c *conn) isBusy() bool {
	return c.state == http.StateActive && !c.ignored || c.state == http.StateHijacked || len(c.requests) > 0 ||
		c.isInHead()
}

// isInHead reports whether a part of a request's head has arrived. With TLS it reports false: the bytes may be the
// handshake's. p.mu is held.
func (c *conn) isInHead() bool {
	isWaiting := c.state == http.StateNew || c.state == http.StateIdle
	return isWaiting && c.partial.Load() > 0 && c.h2 == nil && c.outer == net.Conn(c)
}

func (c *conn) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err := c.Conn.Read(b)
	if n > 0 && c.partial.Load() == 0 {
		c.partial.Store(time.Now().UnixNano())
		if c.p.draining.Load() { // it is busy now
			c.p.mu.Lock()
			c.p.mu.Changed()
			c.p.mu.Unlock()
		}
	}
	if n > 0 && !c.p.selective && !c.heard.Swap(true) {
		c.p.mu.Lock()
		c.p.arrivals++
		c.p.mu.Changed()
		c.p.mu.Unlock()
	}
	switch {
	case err == nil:
	case c.isClosed():
		err = net.ErrClosed
	case !errors.Is(err, os.ErrDeadlineExceeded):
		c.left.Store(true)
	}
	return n, err
}

// Write sends nothing after a truncated response: TLS's close_notify would complete it, as a FIN does without TLS.
func (c *conn) Write(b []byte) (int, error) {
	if c.torn.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *conn) isClosed() bool {
	c.closeMu.Lock()
	defer c.closeMu.Unlock()
	return c.closed
}

func (c *conn) SetDeadline(t time.Time) error { return c.deadline(t, c.Conn.SetDeadline) }

func (c *conn) SetReadDeadline(t time.Time) error { return c.deadline(t, c.Conn.SetReadDeadline) }

// deadline keeps the server's deadlines off a connection that lingers.
func (c *conn) deadline(t time.Time, set func(time.Time) error) error {
	c.closeMu.Lock()
	defer c.closeMu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return set(t)
}

// CloseWrite is for hijackers that close one direction.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close ends the connection. While draining, and after an early response, it sends a FIN, and another goroutine waits
// for the client's: closing a socket with unread bytes resets the connection, which may destroy the last response. The
// client's FIN confirms that it has received everything.
func (c *conn) Close() error {
	c.closeMu.Lock()
	was := c.closed
	if !was { // before a closeAll that follows has finished
		c.p.lingering.Add(1)
		defer c.p.lingering.Done()
	}
	c.closed = true
	c.closeMu.Unlock()
	if was {
		return net.ErrClosed
	}
	c.cutByOwner()
	torn := c.torn.Load()
	orderly := !torn && (c.p.draining.Load() || c.unread.Load()) && c.CloseWrite() == nil
	c.p.mu.Lock()
	if orderly = orderly && !c.p.killed.Load(); orderly { // Kill does not wait
		c.p.lingering.Go(c.linger)
	}
	c.p.gone(c)
	c.p.mu.Unlock()
	switch {
	case orderly:
		return nil
	case torn:
		return c.reset()
	}
	return c.Conn.Close()
}

func (c *conn) linger() {
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // ends a Read that waits
	c.reading.Lock()
	defer c.reading.Unlock()
	_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.Conn)
	_ = c.Conn.Close()
}

// CloseIdle implements drain.DataPlane.
func (p *Plane) CloseIdle(_ context.Context, idleFor time.Duration) error {
	p.beginClosing()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idleFor = idleFor
	p.shutHTTP2()
	p.sweepLocked()
	return nil
}

// shutHTTP2 continues the shutdown of all connections of HTTP/2; mu is held.
func (p *Plane) shutHTTP2() {
	for c := range p.conns {
		if c.h2 != nil {
			c.h2.shutLocked()
		}
	}
}

// sweepSoon makes the sweeper run at once; mu is held.
func (p *Plane) sweepSoon() {
	if p.sweeper != nil {
		p.sweeper.Reset(0)
	}
}

// stopSweeper ends the sweeps until the next CloseIdle; mu is held.
func (p *Plane) stopSweeper() {
	if p.sweeper != nil {
		p.sweeper.Stop()
		p.sweeper = nil
	}
}

func (p *Plane) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeper != nil {
		p.sweepLocked()
	}
}

// sweepLocked closes the connections that have been idle for long enough, and schedules the next sweep; mu is held.
func (p *Plane) sweepLocked() {
	now := time.Now()
	var next time.Time
	for c := range p.conns {
		isInHead := c.isInHead()
		if c.isBusy() && !isInHead || c.h2 != nil { // HTTP/2 connections end by their GOAWAY
			continue
		}
		ends := c.idleUntil(now)
		if now.Before(ends) {
			if next.IsZero() || ends.Before(next) {
				next = ends
			}
			continue
		}
		if isInHead {
			p.raced++
		}
		p.closeIdle(c)
	}
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(time.Hour, p.sweep)
	}
	if next.IsZero() {
		p.sweeper.Stop()
	} else {
		p.sweeper.Reset(time.Until(next))
	}
}

// idleUntil returns when to close a connection that is not busy. net/http calls a connection idle until it has read the
// whole head of a request. p.mu is held.
func (c *conn) idleUntil(now time.Time) time.Time {
	switch partial := c.partial.Load(); {
	case c.state == http.StateActive: // with a request that does not count
	case partial > 0:
		return time.Unix(0, partial).Add(max(c.p.idleFor, freshTime))
	case listen.HasUnread(c.Conn): // which net/http is about to read
		return now.Add(5 * time.Millisecond)
	case !c.hadRequest:
		return c.began.Add(max(c.p.idleFor, freshTime))
	}
	return c.since.Add(c.p.idleFor)
}

// closeIdle closes an idle connection; mu is held.
func (p *Plane) closeIdle(c *conn) {
	p.gone(c) // no longer counted: a request that arrives now has lost the race
	outer, h := c.outer, c.h2
	p.lingering.Go(func() {
		if h != nil {
			h.goAway(http2.NoError)
		}
		_ = outer.Close() // TLS may have to wait for buffer space for close_notify
	})
}

// Open implements drain.DataPlane.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []drain.Conversation
	for c := range p.conns {
		if c.isBusy() {
			all = append(all, c.conversations()...)
		}
	}
	slices.SortFunc(all, func(a, b drain.Conversation) int { return cmp.Compare(b.Age, a.Age) })
	return all[:min(most, len(all))], nil
}

// conversations returns those of a busy connection; p.mu is held.
func (c *conn) conversations() []drain.Conversation {
	var all []drain.Conversation
	for x := range c.requests {
		all = append(all, x.conversation())
	}
	switch {
	case len(all) > 0:
	case c.hijacked != nil:
		all = append(all, c.hijacked.conversation())
	default: // its head is incomplete, or the end of its response being written
		all = append(all, drain.Conversation{Peer: c.RemoteAddr().String(), Protocol: "http/1.1",
			Age: drain.Millis(time.Since(c.since))})
	}
	return all
}
