package gateway

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lingerTime is how long a connection that we have ended waits for its client's
	// end: what the client sends meanwhile would else be answered by a reset, which may
	// overtake our last words.
	lingerTime = time.Second

	// freshTime is how long a new connection counts as busy though nothing has been
	// asked: its request is on the way. Load balancers' TCP checks never ask.
	freshTime = time.Second
)

// client is an accepted connection, below TLS if there is any.
type client struct {
	net.Conn
	p     *Plane
	outer net.Conn // what the server has: with TLS, another

	closed  atomic.Bool
	ended   atomic.Bool // by the client
	writing atomic.Int32
	wrote   atomic.Int64 // when the last Write ended, nanoseconds since epoch
	reading sync.Mutex   // held by a Read

	// Guarded by Plane.mu.
	h2        bool
	fresh     bool      // nothing has been asked yet, and it is not old
	arriving  bool      // as net/http sees it: a request is coming in or answered
	probe     bool      // the latest request was a health check
	requests  int       // in flight that count
	idleSince time.Time // meaningful while it is not busy
	clock     *time.Timer
}

// Read is the server's. What it gets after our end is dropped.
func (c *client) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.ended.Store(true)
	}
	if c.closed.Load() {
		if n > 0 {
			c.p.raced.Add(1)
		}
		return 0, net.ErrClosed
	}
	return n, err
}

// Write notes when there is nothing more to write.
func (c *client) Write(p []byte) (int, error) {
	c.writing.Add(1)
	defer func() { c.wrote.Store(int64(time.Since(epoch))); c.writing.Add(-1) }()
	return c.Conn.Write(p)
}

// epoch is any moment in the past.
var epoch = time.Now()

// flushTime is how long nothing may have been written to an idle HTTP/2 connection before we
// close it: net/http calls it idle a moment before it flushes the last frame.
const flushTime = 10 * time.Millisecond

// unflushed is how long it has to be waited still.
func (c *client) unflushed() time.Duration {
	if !c.h2 {
		return 0
	}
	if c.writing.Load() > 0 {
		return flushTime
	}
	last := max(c.wrote.Load(), int64(c.idleSince.Sub(epoch)))
	return max(0, flushTime-time.Since(epoch.Add(time.Duration(last))))
}

// Close says FIN at once, waits aside for the client's, and then closes.
func (c *client) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	half, ok := c.Conn.(interface{ CloseWrite() error })
	ok = ok && !c.ended.Load()     // who has ended needs no waiting for
	if !c.p.forget(c, ok) || !ok { // killed
		return c.Conn.Close()
	}
	if err := half.CloseWrite(); err != nil { // it is gone already
		c.p.gone()
		return c.Conn.Close()
	}
	go func() {
		defer c.p.gone()
		_ = c.SetReadDeadline(time.Now()) // ends the server's Read
		c.reading.Lock()
		defer c.reading.Unlock()
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.Copy(io.Discard, c.Conn)
		_ = c.Conn.Close()
	}()
	return nil
}

func (c *client) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// busy is called with Plane.mu held.
func (c *client) busy() bool {
	return c.requests > 0 || c.fresh || c.arriving && !c.probe
}
