package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// lingerTime is how long to wait for the client's FIN after ours.
const lingerTime = time.Second

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
	if p.o.Admit != nil {
		admitted := p.o.Admit(nc)
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

// given returns the connection that net/http alone would pass to the program's hooks.
func given(nc net.Conn) net.Conn {
	switch c := nc.(type) {
	case *conn:
		return c.Conn
	case *http2Conn:
		return given(c.Conn)
	}
	return nc
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
	_, isCarriers := nc.(*http2Conn)
	isReported := isCarriers && (s == http.StateNew || s == http.StateClosed) // by the real server
	if p.state != nil && !isReported {
		p.state(given(nc), s)
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
	if n > 0 && c.p.o.Uncounted == nil && !c.heard.Swap(true) { // else an arrival has a request
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

// ReadFrom implements io.ReaderFrom: see exchange.ReadFrom.
func (c *conn) ReadFrom(from io.Reader) (int64, error) {
	if c.torn.Load() {
		return 0, net.ErrClosed
	}
	return io.Copy(c.Conn, from)
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

// SyscallConn is for hijackers that use the socket itself, as servers of many WebSockets do.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return syscallConn(c.Conn) }

func syscallConn(nc net.Conn) (syscall.RawConn, error) {
	if has, ok := nc.(syscall.Conn); ok {
		return has.SyscallConn()
	}
	return nil, errors.ErrUnsupported
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
