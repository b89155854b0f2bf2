package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// h2cConns are the connections to an endpoint that speaks HTTP/2 in clear. A request
// goes over the first that has room for a stream, and is sent once: net/http's own
// pool would also repeat what a PROTOCOL_ERROR has ended, whatever has become of it.
type h2cConns struct {
	addr      string
	transport *http.Transport // makes the connections; knows no request
	timeout   time.Duration   // for an endpoint's first frame
	removed   *atomic.Bool    // the endpoint is

	mu    sync.Mutex
	conns []*http.ClientConn
	next  *connecting // nil when no connection is under way
}

// connecting is one attempt to connect, for all who wait for it. Each of them finds its
// stream reserved: whoever comes meanwhile would take it, and a connection that is
// drained takes no more than those.
type connecting struct {
	done chan struct{}
	err  error // once done

	// Guarded by h2cConns.mu.
	waiting  int
	reserved int // streams on conn, of those who wait
	conn     *http.ClientConn
}

var (
	errNoStream = errors.New("the endpoint's connections have no room for a stream")
	errNoHTTP2  = errors.New("the endpoint does not begin as HTTP/2 does, with SETTINGS")
)

func (t *h2cConns) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := t.reserve(req.Context())
	if err != nil {
		return nil, err
	}
	return c.RoundTrip(req)
}

// roundTripAlone makes the request the first on a connection of its own, which is for all
// afterwards. An endpoint that is drained says goodbye with its first answer, and
// net/http begins no stream then, though it may: of those who share such a
// connection all but one might come too late, again and again.
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

// reserve takes room for one stream, on a new connection if need be.
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
			// Who has asked first may leave: others wait for it as well. It has the
			// connect timeout.
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

// connect fails for all when the connection has not room for one: there would be no end
// of connections.
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

// closeIfRemoved is for a connection that has come when its endpoint had gone: there may be
// nobody else to close it.
func (t *h2cConns) closeIfRemoved() {
	if t.removed.Load() {
		t.CloseIdleConnections()
	}
}

// take is false when others have what was reserved.
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

// leave is for who does not wait any more. What may be reserved for it is given back.
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

// open connects and waits for the endpoint's SETTINGS, before which nobody knows how many
// streams it allows: those beyond would wait on this connection.
func (t *h2cConns) open(ctx context.Context) (*http.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	settled := make(chan struct{})
	c, err := t.transport.NewClientConn(context.WithValue(ctx, settledKey{}, settled), "http", t.addr)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	tell := sync.OnceFunc(func() { close(over) })
	c.SetStateHook(func(c *http.ClientConn) {
		if c.Err() != nil {
			tell()
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

// h2cConn closes the channel in its dial's context when its reader comes for what follows
// the endpoint's first frame: then it has worked that in.
type h2cConn struct {
	net.Conn
	settled chan struct{} // nil once closed; the reader's, as what follows
	have    int           // bytes that have come

	head [wirehttp2.HeaderLen]byte // of the first frame, 0 as far as it has not come
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

// isOver is true of a connection that takes no stream any more and has none. One that
// its endpoint has said goodbye on closes by itself, after its last.
func isOver(c *http.ClientConn) bool {
	return c.Err() != nil || c.Available() == 0 && c.InFlight() == 0
}

// CloseIdleConnections closes each connection after its last stream. Requests that still
// come get another.
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

// isUnseen reports an error of HTTP/2 that says that the endpoint has done nothing with
// the request, which may be repeated whatever it is (RFC 9113, 8.7): the stream was
// refused, is beyond the last that a GOAWAY names, or has never begun. The latter two
// are net/http's own errors, and have only their texts.
func isUnseen(err error) bool {
	var stream http2.StreamError
	if errors.As(err, &stream) {
		return stream.Code == http2.ErrCodeRefusedStream && isReset(stream)
	}
	return err.Error() == "http2: Transport received Server's graceful shutdown GOAWAY" || isUnusable(err)
}

// isUnusable reports that the stream has never begun, because the connection has said
// goodbye or ended since it was reserved.
func isUnusable(err error) bool { return err.Error() == "http2: client conn not usable" }

// isReset tells the endpoint's RST_STREAM from our own, with which net/http answers what
// is no HTTP/2.
func isReset(err http2.StreamError) bool {
	return err.Cause != nil && err.Cause.Error() == "received from peer"
}

// isMalformed reports that what has come is no HTTP/2; HTTP/1.1's answer to the preface for
// one. Such errors of the connection are net/http's own, too.
func isMalformed(err error) bool {
	var stream http2.StreamError
	if errors.As(err, &stream) {
		return !isReset(stream)
	}
	text := err.Error()
	return strings.HasPrefix(text, "connection error: ") || strings.Contains(text, "frame too large") ||
		strings.Contains(text, "frame header looked like an HTTP/1.1 header")
}

// resetReason is Envoy's name of how an endpoint has ended a request, its flag and status.
func resetReason(err error) (reason, flag string, status int) {
	var stream http2.StreamError
	switch {
	case isMalformed(err):
		return accesslog.ReasonProtocolError, accesslog.FlagProtocolError, http.StatusBadGateway
	case !errors.As(err, &stream):
		return accesslog.ReasonTerminated, accesslog.FlagTerminated, http.StatusServiceUnavailable
	case stream.Code == http2.ErrCodeRefusedStream:
		return accesslog.ReasonRefused, accesslog.FlagUpstreamReset, http.StatusServiceUnavailable
	}
	return accesslog.ReasonReset, accesslog.FlagUpstreamReset, http.StatusServiceUnavailable
}
