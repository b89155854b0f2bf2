package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// exchange is one request with its response. It is the proxy's ResponseWriter and its Transport. Except for the
// atomics, it belongs to the handler's goroutine.
type exchange struct {
	http.ResponseWriter
	gateway *Gateway
	request *http.Request // as received
	ctx     context.Context
	cancel  context.CancelCauseFunc

	began, firstByte time.Time // firstByte is that of the response's head; zero without one
	status           int       // 0 until the head is sent
	outcome          accesslog.Outcome
	failure          string // of the endpoint's transport, in Envoy's words

	endpoint  *endpoint // the latest
	local     string    // address of the latest connection to an endpoint
	retried   bool      // with another endpoint
	malformed bool      // the endpoint has sent something that is no response

	upstreamErr error // of a read of the response body
	clientErr   error // of a write to the client

	sent     int64
	received atomic.Int64
	bodyErr  atomic.Bool // the request body could not be read
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader may be called with a 1xx from another goroutine, and records none of those.
func (x *exchange) WriteHeader(status int) {
	if status >= http.StatusOK {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	n, err := x.ResponseWriter.Write(p)
	x.sent += int64(n)
	if err != nil {
		x.clientErr = err
	}
	return n, err
}

// clientBody is a request's body. It counts the bytes.
type clientBody struct {
	io.ReadCloser
	x *exchange
}

func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.x.received.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.x.bodyErr.Store(true)
	}
	return n, err
}

// responseBody records errors of the endpoint.
type responseBody struct {
	io.ReadCloser
	x *exchange
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.x.upstreamErr = err
	}
	return n, err
}

// end writes the access log line of an exchange that has ended.
func (x *exchange) end() {
	if x.outcome == (accesslog.Outcome{}) {
		x.outcome = x.passed()
	}
	if x.endpoint != nil {
		x.endpoint.release()
	}
	if x.gateway.access != nil {
		x.gateway.access.Write(x.entry())
	}
}

// passed is the outcome of a response of the endpoint's own.
func (x *exchange) passed() accesslog.Outcome {
	switch {
	case x.clientErr != nil || x.upstreamErr != nil && x.ctx.Err() != nil:
		return accesslog.ClientClosed
	case x.upstreamErr != nil: // for Envoy's parser, an end within a body is a malformed body
		return accesslog.Truncated
	}
	return accesslog.ViaUpstream
}

func (x *exchange) entry() *accesslog.Entry {
	r := x.request
	e := &accesslog.Entry{
		Began: x.began, FirstByte: x.firstByte, Method: r.Method, Path: r.RequestURI, Protocol: r.Proto,
		Status: x.status, Outcome: x.outcome, UpstreamFailure: x.failure,
		Received: uint64(x.received.Load()), Sent: uint64(x.sent),
		ForwardedFor: r.Header.Get("X-Forwarded-For"), UserAgent: r.UserAgent(),
		RequestID: r.Header.Get("X-Request-Id"), Authority: r.Host,
		UpstreamLocal: x.local, Downstream: r.RemoteAddr,
	}
	if x.endpoint != nil {
		e.Upstream = x.endpoint.address
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		e.DownstreamLocal = local.String()
	}
	return e
}
