package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// errBodyClosed: the attempt that the body was given to is over.
var errBodyClosed = errors.New("request body read after its attempt")

// roundTripper sends a request to an endpoint, by the rules of the package
// comment.
type roundTripper struct{ endpoints *endpoints }

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	resent := false
	var lastErr error
	for {
		ep := t.endpoints.pick(x.tried)
		if ep == nil {
			if lastErr == nil {
				lastErr = errNoEndpoints
			}
			return nil, lastErr
		}
		body := &attemptBody{body: req.Body}
		resp, err := t.attempt(req, x, ep, body)
		if err == nil {
			x.serviceTime = time.Since(x.begin)
			return resp, nil
		}
		lastErr = err
		if body.taken() || context.Cause(req.Context()) != nil {
			return nil, err
		}
		var connect *connectError
		switch {
		case errors.As(err, &connect):
			x.tried = append(x.tried, ep)
		case x.reused && x.flight.unsent() && !resent:
			resent = true
		default:
			return nil, err
		}
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
