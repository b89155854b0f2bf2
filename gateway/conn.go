package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// errConnectionTermination: the upstream connection ended before one byte of
// the response, and the request may have been worked on.
var errConnectionTermination = errors.New("upstream connection ended before the response")

// conn is a connection to an endpoint. It knows how much of the present
// request has been sent, so that the Transport's retries can be held to the
// rules of the package comment: when the connection ends under a request that
// someone may have seen, the request's context is cancelled before the
// Transport learns of the end, and a cancelled request is not retried.
type conn struct {
	net.Conn

	mu      sync.Mutex // guards what follows; never held over a read or write
	sent    uint64     // bytes given to the kernel, or about to be, since the dial
	begin   uint64     // sent when the latest request got the connection
	offset  uint64     // what TCP_INFO counts as acknowledged beyond the bytes (the SYN)
	known   bool       // whether TCP_INFO can be had
	current *flight    // nil when idle or when the response has begun
	ended   bool       // by the other side, as a read or write has shown
	deaf    bool       // a write has failed after others of the same request
	tail    []byte     // the last bytes read, at most len(headEnd)
}

// headEnd is what ends a head, an interim response's (1xx) as well.
const headEnd = "\r\n\r\n"

// flight is a request on its way, from getting a connection to the first byte of
// its response.
type flight struct {
	cancel context.CancelCauseFunc
	mu     sync.Mutex // guards wrote
	wrote  bool       // on the present connection
	begin  uint64     // conn.sent when it got the connection
}

func newConn(c net.Conn) *conn {
	acked, known := bytesAcked(c)
	return &conn{Conn: c, offset: acked, known: known}
}

// carry is called when a request gets the connection, before a byte is written.
func (c *conn) carry(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	c.begin = c.sent
	f.begin, f.wrote = c.sent, false
	c.current, c.tail = f, c.tail[:0]
}

// unsent reports that nothing of the request was written to the connection that
// it had last.
func (f *flight) unsent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.wrote
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteEnd(err)
	if n > 0 {
		c.current = nil
		c.tail = append(c.tail, p[max(0, n-len(headEnd)):n]...)
		c.tail = c.tail[max(0, len(c.tail)-len(headEnd)):]
		return n, err
	}
	// Closed here, it did not end by the other side: the Transport does so after
	// a request body that could not be read, and then it does not retry.
	if f := c.current; f != nil && c.ended && !c.unseen(f, err) {
		f.cancel(errConnectionTermination)
	}
	return n, err
}

// unseen reports that the other side cannot have seen a byte of f when it
// ended the connection. Called with mu held.
func (c *conn) unseen(f *flight, err error) bool {
	if f.unsent() {
		return true
	}
	// A FIN carries the acknowledgement of all that its kernel had received. A
	// reset does not: TCP drops it before looking at its acknowledgement.
	if !c.known || !errors.Is(err, io.EOF) {
		return false
	}
	acked, ok := bytesAcked(c.Conn)
	return ok && acked <= f.begin+c.offset
}

// Write drops the rest of a request whose beginning has been written when the other side takes no more of it:
// the response may be there already, and the Transport would not look for it after an error. The connection's
// end comes by Read.
func (c *conn) Write(p []byte) (int, error) {
	// Noted before: the answer may come, or the end, while Write is under way.
	c.mu.Lock()
	if c.deaf {
		c.mu.Unlock()
		return len(p), nil
	}
	begun := c.sent > c.begin
	c.sent += uint64(len(p))
	if f := c.current; f != nil {
		f.mu.Lock()
		f.wrote = true
		f.mu.Unlock()
	}
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteEnd(err)
	if (begun || n > 0) && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		c.deaf = true
		return len(p), nil
	}
	return n, err
}

// noteEnd is called with mu held. A connection that was closed here, as the
// Transport does after nonsense, did not end by the other side.
func (c *conn) noteEnd(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.ended = true
	}
}

// endedBetweenMessages reports that the other side ended the connection before
// the response or after an interim one. In the midst of a head it is a
// protocol error, to Envoy as well.
func (c *conn) endedBetweenMessages() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended && (len(c.tail) == 0 || bytes.Equal(c.tail, []byte(headEnd)))
}

// CloseWrite passes one side's end on, for upgraded connections.
func (c *conn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Conn.Close()
}
