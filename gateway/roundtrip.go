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

// roundTripper sends a request to an endpoint, by the rules of the package
// comment.
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
			// Only HTTP/2 says of a request that has been sent that nobody has seen it.
			body = newReplay(req.Body, x.spoken == H2C)
		}
		lent := body.attempt()
		resp, err := t.attempt(req, x, ep, lent, alone)
		if err == nil {
			lent.settled()
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
		late := x.spoken == H2C && !alone && isUnusable(err)
		unseen := x.spoken == H2C && !late && isUnseen(err)
		if unseen {
			pool.log.DebugContext(req.Context(), "the endpoint has not looked at the request", "upstream", ep.addr, "attempt", len(x.tried)+1, "error", err)
			x.tried = append(x.tried, ep)
		}
		switch {
		case lent.taken() || context.Cause(req.Context()) != nil:
			return nil, err
		case late:
			alone = true
		case (refused || unseen) && len(x.tried) < pool.options.MaxAttempts:
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
