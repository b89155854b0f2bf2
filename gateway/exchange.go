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
	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// exchange is one request and what became of it. It stands between the server's
// ResponseWriter and the proxy. But for the atomics, it belongs to the
// handler's goroutine.
type exchange struct {
	http.ResponseWriter
	request *http.Request // as it came
	route   *Route        // nil when there is none
	begin   time.Time
	timer   *time.Timer // of the request timeout; nil without one

	status      int           // 0 until the head is sent
	serviceTime time.Duration // until the upstream's head came; -1 if it did not
	outcome     accesslog.Outcome
	failure     string // of the upstream's transport

	flight   flight
	tried    []*endpoint // that did not take the connection
	retried  bool        // after a connection that was not made
	endpoint *endpoint   // the last
	spoken   Protocol    // with it
	conn     *conn       // the last
	reused   bool        // conn had carried another request

	writeErr    error // the client did not take it
	upstreamErr error // the upstream broke in the middle of its body

	whole bool      // the head is all of the response
	calls *messages // of a gRPC response; nil when it is none

	trailer http.Header // of the request; filled by the end of its body, read by the transport after it

	cut         atomic.Bool  // what it was upgraded to got its last word
	received    atomic.Int64 // body bytes; after an upgrade, all
	allReceived atomic.Bool  // the request's body has come to its end, or there is none
	sent        atomic.Int64
	bodyErr     atomic.Pointer[error]
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// Unwrap lets http.ResponseController do what is not here.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader may be called with a 1xx from another goroutine: nothing is noted
// of those. The endpoint's 100 is not passed on to a client that awaits one: the
// server says it by itself when the body is first read, which the 100 brings
// about, and it would be said twice if that comes first.
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

// FlushError does not send a head alone that is all there is: it ends the stream, by which
// gRPC's clients know a response of trailers only.
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

// requestBody counts, and notes when it is the client that broke.
type requestBody struct {
	io.ReadCloser
	x    *exchange
	once sync.Once
}

// Close may be called by several, and while a Read waits.
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

// responseBody notes when it is the upstream that broke.
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

// Close does not wait for a response over HTTP/2 that has come before the request's end: net/http would until the
// next bytes of the client.
func (b *responseBody) Close() error {
	if b.x.spoken == H2C && !b.x.allReceived.Load() {
		go func() { _ = b.ReadCloser.Close() }()
		return nil
	}
	return b.ReadCloser.Close()
}

// upstream is the endpoint that was asked last, or "".
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

// settle decides how the request ended, if no reply of the gateway's own did.
// ctx is the request's.
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
	case x.upstreamErr != nil: // to Envoy's parser an end in the midst of a body is a wrong body
		x.outcome = accesslog.Truncated
	}
}
