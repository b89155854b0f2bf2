package gateway

import (
	"errors"
	"net"
	"sync"
)

// errTerminated means that the connection ended before the response, and that the endpoint may have processed the
// request.
var errTerminated = errors.New("the endpoint's connection ended before the response")

// conn is a connection to an endpoint. When it ends before the response to a request of which a byte was written, it
// cancels the request before the Transport sees the end: the Transport does not repeat a cancelled request.
type conn struct {
	*net.TCPConn

	mu      sync.Mutex // guards the rest; never held over a read or write
	current *attempt   // nil when idle and from the first byte of the response on
	written bool       // a byte of the latest request may have been sent
}

// carry is called when a request gets the connection, before a byte is written.
func (c *conn) carry(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.written = a, false
}

func (c *conn) hasWritten() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.current == nil:
	case n > 0:
		c.current.responded.Store(true)
		c.current = nil
	case err != nil && !errors.Is(err, net.ErrClosed) && c.written:
		c.current.cancel(errTerminated)
	}
	return n, err
}

// Write records the write before it happens: the response, or the end, may arrive during it.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.written = true
	c.mu.Unlock()
	return c.TCPConn.Write(p)
}
