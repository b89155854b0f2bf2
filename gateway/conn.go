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

// errConnectionTermination means that the upstream connection ended before the first byte of the response, and that the
// endpoint may have processed the request.
var errConnectionTermination = errors.New("upstream connection ended before the response")

// conn is a connection to an endpoint. It counts what was sent of the current request, to limit the Transport's retries
// to the rules of the package comment: when the connection ends and the endpoint may have received the request, the
// request's context is cancelled before the Transport sees the end, and a cancelled request is not retried.
type conn struct {
	net.Conn

	mu      sync.Mutex // guards what follows; never held over a read or write
	sent    uint64     // bytes written, or about to be, since the dial
	begin   uint64     // sent when the latest request got the connection
	offset  uint64     // acknowledged bytes that TCP_INFO counts before the first write (the SYN)
	known   bool       // whether TCP_INFO is available
	current *flight    // nil when idle or when the response has begun
	ended   bool       // by the peer, as a read or write has shown
	deaf    bool       // a write has failed after others of the same request: the rest is dropped
	tail    []byte     // the last bytes read, at most len(headEnd)
}

// headEnd ends a response head, also that of an interim response (1xx).
const headEnd = "\r\n\r\n"

// flight is a request in flight, from getting a connection to the first byte of its response.
type flight struct {
	cancel context.CancelCauseFunc
	mu     sync.Mutex // guards wrote
	wrote  bool       // on the current connection
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

// unsent reports whether nothing of the request was written to its latest connection.
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
	// If the Transport has closed it, as after a request body that could not be read, it does not retry.
	if f := c.current; f != nil && c.ended && !c.unseen(f, err) {
		f.cancel(errConnectionTermination)
	}
	return n, err
}

// unseen reports whether the peer cannot have received a byte of f when it ended the connection. mu is held.
func (c *conn) unseen(f *flight, err error) bool {
	if f.unsent() {
		return true
	}
	// A FIN acknowledges everything that the peer's kernel had received. A reset does not: TCP closes before it
	// processes the acknowledgement.
	if !c.known || !errors.Is(err, io.EOF) {
		return false
	}
	acked, ok := bytesAcked(c.Conn)
	return ok && acked <= f.begin+c.offset
}

// Write drops the rest of a partly written request when the peer no longer accepts it: the response may have arrived
// already, and the Transport would not read it after an error. Read reports the end of the connection.
func (c *conn) Write(p []byte) (int, error) {
	// Recorded before the write: the response, or the end, may arrive during it.
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

// noteEnd records that the peer has ended the connection, unless the Transport has closed it, as after a malformed
// response. mu is held.
func (c *conn) noteEnd(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.ended = true
	}
}

// endedBetweenMessages reports whether the peer ended the connection before the response or after an interim one. Within
// a head it is a protocol error, as it is for Envoy.
func (c *conn) endedBetweenMessages() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended && (len(c.tail) == 0 || bytes.Equal(c.tail, []byte(headEnd)))
}

// CloseWrite half-closes an upgraded connection.
func (c *conn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Conn.Close()
}
