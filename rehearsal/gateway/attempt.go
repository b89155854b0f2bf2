package gateway

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"
)

const (
	maxAttempts = 3                     // to connect: Istio's two retries
	baseBackOff = 25 * time.Millisecond // Envoy's default base interval
)

var errNoEndpoints = errors.New("no endpoint")

// RoundTrip sends the request to an endpoint, and to others by the rules in the package comment.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	var tried []*endpoint
	for {
		ep := x.gateway.pick(tried)
		if ep == nil {
			return nil, errNoEndpoints
		}
		if slices.Contains(tried, ep) && !backOff(x.ctx, len(tried)) {
			return nil, context.Cause(x.ctx)
		}
		a := &attempt{cancel: x.cancel}
		resp, err := x.attempt(a, ep, req)
		if err == nil {
			return resp, nil
		}
		var connect *connectError
		refused := errors.As(err, &connect)
		if a.body.isTaken() || x.ctx.Err() != nil || !refused && !a.isUnsent() {
			return nil, err
		}
		if !refused {
			continue // this ends: each round uses up a kept connection
		}
		x.gateway.log.Debug("connection refused by endpoint", "endpoint", ep.address, "error", err)
		if tried = append(tried, ep); len(tried) == maxAttempts {
			return nil, err
		}
		x.retried = true
	}
}

// attempt sends the request to one endpoint.
func (x *exchange) attempt(a *attempt, ep *endpoint, req *http.Request) (*http.Response, error) {
	x.endpoint, x.local = ep, ""
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c := info.Conn.(*conn)
		x.local = c.LocalAddr().String()
		a.conn, a.reused = c, info.Reused
		c.carry(a)
	}}
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	url := *req.URL
	url.Scheme, url.Host = "http", ep.address
	out.URL = &url
	if req.Body != nil {
		a.body = &attemptBody{ReadCloser: req.Body}
		out.Body = a.body
	}
	resp, err := ep.transport.RoundTrip(out)
	if err != nil {
		x.malformed = a.responded.Load()
		return nil, err
	}
	x.firstByte = time.Now()
	if resp.StatusCode == http.StatusSwitchingProtocols { // its body is the connection
		x.status = resp.StatusCode
	} else {
		resp.Body = &responseBody{resp.Body, x}
	}
	return resp, nil
}

// attempt is a request on its way to one endpoint.
type attempt struct {
	cancel    context.CancelCauseFunc
	body      *attemptBody // nil: none
	conn      *conn        // nil before there is one
	reused    bool         // conn had carried another request
	responded atomic.Bool  // a byte of the response has arrived
}

// isUnsent reports whether a kept connection was closed before a byte of the request was written to it.
func (a *attempt) isUnsent() bool { return a.reused && !a.conn.hasWritten() }

// attemptBody is a request's body for one attempt. Close leaves the body open for the next one.
type attemptBody struct {
	io.ReadCloser
	read, closed atomic.Bool
}

// Read sets read before it checks closed, and isTaken sets closed before it checks read: one of them sees the other.
func (b *attemptBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

func (b *attemptBody) Close() error {
	b.closed.Store(true)
	return nil
}

// isTaken ends the attempt's use of the body, and reports whether another attempt would miss a part of it.
func (b *attemptBody) isTaken() bool {
	if b == nil {
		return false
	}
	b.closed.Store(true)
	return b.read.Load()
}

// backOff waits before an endpoint is tried again, as Envoy does: a random part of 25 ms, 75 ms and so on. It returns
// false when ctx ends first.
func backOff(ctx context.Context, tries int) bool {
	timer := time.NewTimer(rand.N(baseBackOff<<tries - baseBackOff))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
