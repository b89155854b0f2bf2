package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// h2cConns are the connections to an endpoint that uses HTTP/2 without TLS. A request takes the first one with a free
// stream, and is sent once: net/http's own pool also repeats requests that ended with PROTOCOL_ERROR, which the
// endpoint may have processed.
type h2cConns struct {
	addr      string
	transport *http.Transport // only makes connections
	timeout   time.Duration   // for an endpoint's first frame
	removed   *atomic.Bool    // the endpoint has left its pool

	mu    sync.Mutex
	conns []*http.ClientConn
	next  *connecting // nil when no connection is being made
}

// connecting is one attempt to connect, shared by the requests that wait for it. A stream is reserved for each of
// them: later requests would take it otherwise, and a connection to a draining endpoint may offer no others.
type connecting struct {
	done chan struct{}
	err  error // once done

	// Guarded by h2cConns.mu.
	waiting  int
	reserved int // streams on conn for waiting requests
	conn     *http.ClientConn
}

var (
	errNoStream = errors.New("the endpoint allows no stream on a new connection")
	errNoHTTP2  = errors.New("the endpoint does not speak HTTP/2: no SETTINGS frame")
)

func (t *h2cConns) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := t.reserve(req.Context())
	if err != nil {
		return nil, err
	}
	return c.RoundTrip(req)
}

// roundTripAlone sends the request as the first one on a new connection, which others may use afterwards. A draining
// endpoint sends GOAWAY with its first response, and net/http then begins no other stream, though it could: on a shared
// connection, all requests but one may come too late, again and again.
func (t *h2cConns) roundTripAlone(req *http.Request) (*http.Response, error) {
	c, err := t.open(req.Context())
	if err != nil {
		return nil, err
	}
	if c.Reserve() != nil {
		_ = c.Close()
		return nil, &connectError{addr: t.addr, err: errNoStream}
	}
	resp, err := c.RoundTrip(req)
	t.mu.Lock()
	t.conns = append(t.conns, c)
	t.mu.Unlock()
	t.closeIfRemoved()
	return resp, err
}

// reserve reserves a stream, on a new connection if necessary.
func (t *h2cConns) reserve(ctx context.Context) (*http.ClientConn, error) {
	for {
		t.mu.Lock()
		t.conns = slices.DeleteFunc(t.conns, isOver)
		for _, c := range t.conns {
			if c.Reserve() == nil {
				t.mu.Unlock()
				return c, nil
			}
		}
		d := t.next
		if d == nil {
			d = &connecting{done: make(chan struct{})}
			t.next = d
			// Other requests wait for this connection, so it outlives the first one's context. The connect
			// timeout bounds it.
			go t.connect(context.WithoutCancel(ctx), d)
		}
		d.waiting++
		t.mu.Unlock()
		select {
		case <-d.done:
		case <-ctx.Done():
			t.leave(d)
			return nil, context.Cause(ctx)
		}
		if d.err != nil {
			return nil, d.err
		}
		if d.take(&t.mu) {
			return d.conn, nil
		}
	}
}

// connect makes a connection for d. When it allows no stream, all waiting requests fail: another connection would not
// help, and the gateway would open connections forever.
func (t *h2cConns) connect(ctx context.Context, d *connecting) {
	c, err := t.open(ctx)
	t.mu.Lock()
	t.next = nil
	if d.err = err; err == nil {
		for d.reserved < d.waiting && c.Reserve() == nil {
			d.reserved++
		}
		if d.waiting > 0 && d.reserved == 0 {
			d.err = &connectError{addr: t.addr, err: errNoStream}
			_ = c.Close()
		} else {
			d.conn = c
			t.conns = append(t.conns, c)
		}
	}
	close(d.done)
	t.mu.Unlock()
	t.closeIfRemoved()
}

// closeIfRemoved closes a connection that was made after its endpoint left the pool: nothing else may close it.
func (t *h2cConns) closeIfRemoved() {
	if t.removed.Load() {
		t.CloseIdleConnections()
	}
}

// take takes a reserved stream. It returns false when none is left.
func (d *connecting) take(mu *sync.Mutex) bool {
	mu.Lock()
	defer mu.Unlock()
	d.waiting--
	if d.reserved == 0 {
		return false
	}
	d.reserved--
	return true
}

// leave ends the wait of a request, and releases a stream that was reserved for it.
func (t *h2cConns) leave(d *connecting) {
	t.mu.Lock()
	d.waiting--
	surplus := d.reserved > d.waiting
	if surplus {
		d.reserved--
	}
	t.mu.Unlock()
	if surplus {
		d.conn.Release()
	}
}

// open connects and waits for the endpoint's SETTINGS, which limit the streams: requests beyond the limit would wait on
// this connection otherwise.
func (t *h2cConns) open(ctx context.Context) (*http.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	settled := make(chan struct{})
	c, err := t.transport.NewClientConn(context.WithValue(ctx, settledKey{}, settled), "http", t.addr)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	end := sync.OnceFunc(func() { close(over) })
	c.SetStateHook(func(c *http.ClientConn) {
		if c.Err() != nil {
			end()
		}
	})
	select {
	case <-settled:
		if err = c.Err(); err == nil {
			c.SetStateHook(nil)
			return c, nil
		}
	case <-over:
		err = errNoHTTP2
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = c.Close()
	return nil, &connectError{addr: t.addr, err: err}
}

type settledKey struct{}

// h2cConn closes the channel from its dial's context when net/http reads past the endpoint's first frame, which it has
// applied by then.
type h2cConn struct {
	net.Conn
	settled chan struct{} // nil once closed; used by the reader only, as are the following
	have    int           // bytes received

	head [wirehttp2.HeaderLen]byte // of the first frame; zero where not received yet
}

func newH2CConn(ctx context.Context, c net.Conn) net.Conn {
	settled, _ := ctx.Value(settledKey{}).(chan struct{})
	return &h2cConn{Conn: c, settled: settled}
}

func (c *h2cConn) Read(p []byte) (int, error) {
	if c.settled != nil && c.have >= len(c.head)+wirehttp2.PayloadLen(c.head[:]) {
		close(c.settled)
		c.settled = nil
	}
	n, err := c.Conn.Read(p)
	if c.settled != nil {
		if c.have < len(c.head) {
			copy(c.head[c.have:], p[:n])
		}
		c.have += n
	}
	return n, err
}

// isOver reports whether a connection has no stream and allows none. After a GOAWAY it closes by itself when its last
// stream ends.
func isOver(c *http.ClientConn) bool {
	return c.Err() != nil || c.Available() == 0 && c.InFlight() == 0
}

// CloseIdleConnections closes each connection when its last stream ends. Later requests get a new connection.
func (t *h2cConns) CloseIdleConnections() {
	t.mu.Lock()
	all := t.conns
	t.conns = nil
	t.mu.Unlock()
	for _, c := range all {
		c.SetStateHook(closeIfIdle)
		closeIfIdle(c)
	}
}

func closeIfIdle(c *http.ClientConn) {
	if c.InFlight() == 0 {
		_ = c.Close()
	}
}
