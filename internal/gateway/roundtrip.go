package gateway

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// errBodyClosed: the attempt that the body was given to is over.
var errBodyClosed = errors.New("request body read after its attempt")

const baseBackOff = 25 * time.Millisecond // Envoy's default base interval

// roundTripper sends a request to an endpoint, by the rules of the package
// comment.
type roundTripper struct{}

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	pool := x.route.Pool
	for {
		ep, again := pool.pick(x.tried)
		if ep == nil {
			return nil, errNoEndpoints
		}
		if again && !backOff(req.Context(), len(x.tried)) {
			return nil, context.Cause(req.Context())
		}
		body := &attemptBody{body: req.Body}
		resp, err := t.attempt(req, x, ep, body)
		if err == nil {
			x.serviceTime = time.Since(x.begin)
			return resp, nil
		}
		var connect *connectError
		refused := errors.As(err, &connect)
		if refused {
			reason, _ := connect.reason()
			pool.log.DebugContext(req.Context(), logUpstreamReset+reason, "upstream", ep.addr, "attempt", len(x.tried)+1, "error", connect.err)
			x.tried = append(x.tried, ep)
		}
		switch {
		case body.taken() || context.Cause(req.Context()) != nil:
			return nil, err
		case refused && len(x.tried) < pool.options.MaxAttempts:
			x.retried = true
		case !refused && x.reused && x.flight.unsent():
			// Comes to an end: each time a kept connection is used up.
		default:
			return nil, err
		}
	}
}

// backOff waits before an endpoint is tried again, as Envoy does: a random part
// of 25 ms, 75 ms, 175 ms and so on. It reports false when ctx ended first.
func backOff(ctx context.Context, tries int) bool {
	most := baseBackOff<<min(tries, 5) - baseBackOff
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t roundTripper) attempt(req *http.Request, x *exchange, ep *endpoint, body *attemptBody) (*http.Response, error) {
	x.endpoint, x.conn, x.reused = ep, nil, false
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if c, ok := info.Conn.(*conn); ok {
			x.conn, x.reused = c, info.Reused
			c.carry(&x.flight)
		}
	}}
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	url := *req.URL
	url.Scheme, url.Host = "http", ep.addr
	out.URL = &url
	if req.Body != nil {
		out.Body = body
	}
	return ep.transport.RoundTrip(out)
}

// attemptBody lends the request's body to one attempt. Its Close leaves
// the body open for the next one.
type attemptBody struct {
	body   io.ReadCloser
	read   atomic.Bool
	closed atomic.Bool
}

// Read notes itself before it looks whether it is too late, and taken does the
// opposite: one of them sees the other.
func (b *attemptBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	if b.closed.Load() {
		return 0, errBodyClosed
	}
	return b.body.Read(p)
}

func (b *attemptBody) Close() error {
	b.closed.Store(true)
	return nil
}

// taken ends the attempt's hold on the body and reports whether some of it
// has been read.
func (b *attemptBody) taken() bool {
	b.closed.Store(true)
	return b.read.Load()
}
