package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// exchange is one request with its response. It is the proxy's ResponseWriter and wraps the server's. Except for the
// atomics, it belongs to the handler's goroutine.
type exchange struct {
	http.ResponseWriter
	request *http.Request // as received
	route   *Route        // nil if none matches
	begin   time.Time
	timer   *time.Timer // of the request timeout; nil without one

	status      int           // 0 until the head is sent
	serviceTime time.Duration // until the upstream's response head; -1 without one
	outcome     accesslog.Outcome
	failure     string // of the upstream's transport, in Envoy's words

	flight   flight
	tried    []*endpoint // that have not processed the request
	retried  bool        // on another endpoint
	endpoint *endpoint   // the latest
	spoken   Protocol    // to endpoint
	conn     *conn       // the latest; nil over HTTP/2
	reused   bool        // conn had carried another request

	writeErr    error // of a write to the client
	upstreamErr error // of a read of the response body

	whole bool      // the response is only a head
	calls *messages // of a gRPC response, else nil

	trailer http.Header // of the request; filled at the end of its body, read by the transport afterwards

	cut         atomic.Bool  // the last call has ended the upgraded connection or the gRPC response
	received    atomic.Int64 // body bytes; after an upgrade, all bytes
	allReceived atomic.Bool  // the request's body has been read to its end, or is empty
	sent        atomic.Int64
	bodyErr     atomic.Pointer[error]
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader may be called with a 1xx from another goroutine, and records none of those. The endpoint's 100 is not
// passed on to a client that expects one: it makes the transport read the body, and then the server sends a 100 itself.
func (x *exchange) WriteHeader(status int) {
	if status == http.StatusContinue && strings.EqualFold(x.request.Header.Get("Expect"), "100-continue") {
		return
	}
	if status >= 200 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.calls != nil && !x.calls.pass(p) {
		return len(p), nil
	}
	n, err := x.ResponseWriter.Write(p)
	x.sent.Add(int64(n))
	if err != nil {
		x.writeErr = err
	}
	return n, err
}

// FlushError does not send the head of a response without a body: the server must send it with END_STREAM, by which gRPC
// clients recognise a trailers-only response.
func (x *exchange) FlushError() error {
	if x.whole {
		return nil
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Hijack is called by the proxy for a 101.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.status = http.StatusSwitchingProtocols
	u := &upgraded{Conn: c, early: rw.Reader, x: x, up: ws.Follower{Masked: true}}
	if strings.EqualFold(x.request.Header.Get("Upgrade"), "websocket") {
		httpdrain.OnLastCall(x.ResponseWriter, u.lastCall)
	}
	return u, rw, nil
}

// requestBody counts the bytes, and records errors of the client.
type requestBody struct {
	io.ReadCloser
	x    *exchange
	once sync.Once
}

// Close may be called several times, and during a Read.
func (b *requestBody) Close() (err error) {
	b.once.Do(func() { err = b.ReadCloser.Close() })
	return err
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.x.received.Add(int64(n))
	if errors.Is(err, io.EOF) {
		b.x.allReceived.Store(true)
		if b.x.trailer != nil {
			copyTrailers(b.x.trailer, b.x.request.Trailer)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.x.bodyErr.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (x *exchange) bodyError() error {
	if err := x.bodyErr.Load(); err != nil {
		return *err
	}
	return nil
}

// responseBody records errors of the upstream.
type responseBody struct {
	io.ReadCloser
	x        *exchange
	response *http.Response
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.x.calls != nil && b.x.calls.hasEnded() {
		b.response.Trailer = http.Header{"Grpc-Status": {grpc.Unavailable}, "Grpc-Message": {accesslog.MessageLastCall}}
		return n, io.EOF
	}
	if errors.Is(err, io.EOF) {
		dropTrailers(b.response.Trailer)
	} else if err != nil {
		b.x.upstreamErr = err
	}
	return n, err
}

// Close does not wait for net/http, which after an HTTP/2 response that precedes the end of its request waits for the
// client's next bytes.
func (b *responseBody) Close() error {
	if b.x.spoken == H2C && !b.x.allReceived.Load() {
		go func() { _ = b.ReadCloser.Close() }()
		return nil
	}
	return b.ReadCloser.Close()
}

// upstream returns the address of the latest endpoint, or "".
func (x *exchange) upstream() string {
	if x.endpoint == nil {
		return ""
	}
	return x.endpoint.addr
}

func (x *exchange) routeName() string {
	if x.route == nil {
		return ""
	}
	return x.route.Name
}

func (x *exchange) cluster() string {
	if x.route == nil {
		return ""
	}
	return x.route.Pool.name
}

// settle sets the outcome of a request that got no reply of the gateway's own. ctx is the request's.
func (x *exchange) settle(ctx context.Context) {
	if x.outcome != (accesslog.Outcome{}) {
		return
	}
	cause := context.Cause(ctx)
	x.outcome = accesslog.ViaUpstream
	switch {
	case errors.Is(cause, httpdrain.ErrLastCall) || x.cut.Load():
		x.outcome = accesslog.LastCall
	case x.upstreamErr != nil && errors.Is(cause, errRequestTimeout):
		x.outcome = accesslog.ResponseTimeout
	case x.writeErr != nil || x.upstreamErr != nil && cause != nil:
		x.outcome = accesslog.ClientClosed
	case x.upstreamErr != nil && x.spoken == H2C:
		reason, flag, _ := h2cErrorOf(x.upstreamErr).outcome()
		x.outcome = accesslog.After(flag, reason)
	case x.upstreamErr != nil: // for Envoy's parser, an end within a body is a malformed body
		x.outcome = accesslog.Truncated
	}
}
