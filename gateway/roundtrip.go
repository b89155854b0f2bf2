package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"time"
)

const baseBackOff = 25 * time.Millisecond // Envoy's default base interval

// roundTripper sends a request to an endpoint, and to others by the rules for retries in the package comment.
type roundTripper struct{}

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	pool := x.route.Pool
	var body *replay
	alone := false
	for {
		ep, again := pool.pick(x.tried)
		if ep == nil {
			return nil, errNoEndpoints
		}
		if again && !backOff(req.Context(), len(x.tried)) {
			return nil, context.Cause(req.Context())
		}
		x.spoken = ep.speaks(req)
		if body == nil {
			// Only HTTP/2 can report that the endpoint has not processed a request that was sent.
			body = newReplay(req.Body, x.spoken == H2C)
		}
		lent := body.attempt()
		resp, err := t.attempt(req, x, ep, lent, alone)
		if err == nil {
			lent.settled()
			x.serviceTime = time.Since(x.begin)
			return resp, nil
		}
		next := x.retryAfter(err, alone)
		if next == elsewhere {
			pool.logAttempt(req.Context(), x, err)
			x.tried = append(x.tried, ep)
		}
		switch {
		case next == never, lent.taken(), context.Cause(req.Context()) != nil:
			return nil, err
		case next == elsewhere && len(x.tried) >= pool.options.MaxAttempts:
			return nil, err
		case next == elsewhere:
			x.retried = true
		case next == onItsOwn:
			alone = true
		}
	}
}

// retry is how a request may be repeated after a failed attempt.
type retry int

const (
	never     retry = iota // the endpoint may have processed it
	elsewhere              // no endpoint has processed it: another endpoint, up to MaxAttempts
	onItsOwn               // over HTTP/2 on a new connection, as its first request
	onAnother              // over HTTP/1.1 on another connection
)

// retryAfter decides it for an attempt that has failed with err.
func (x *exchange) retryAfter(err error, alone bool) retry {
	var connect *connectError
	switch {
	case errors.As(err, &connect):
		return elsewhere
	case x.spoken == H2C:
		switch e := h2cErrorOf(err); {
		case e == neverBegun && !alone:
			return onItsOwn
		case e.isUnprocessed():
			return elsewhere
		}
	case x.reused && x.flight.unsent():
		// The endpoint has closed a kept connection before the request was sent. The loop ends: each round uses
		// up a kept connection.
		return onAnother
	}
	return never
}

// logAttempt logs an attempt that another endpoint may make up for.
func (p *Pool) logAttempt(ctx context.Context, x *exchange, err error) {
	message := "request not processed by the endpoint"
	var connect *connectError
	if errors.As(err, &connect) {
		reason, _ := connect.reason()
		message, err = logUpstreamReset+reason, connect.err
	}
	p.log.DebugContext(ctx, message, "upstream", x.endpoint.addr, "attempt", len(x.tried)+1, "error", err)
}

// backOff waits before an endpoint is tried again, as Envoy does: a random part of 25 ms, 75 ms, 175 ms and so on. It
// returns false when ctx ends first.
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

func (t roundTripper) attempt(req *http.Request, x *exchange, ep *endpoint, body *attemptBody, alone bool) (*http.Response, error) {
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
	return ep.send(out, alone)
}
