package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

// Causes of the end of a request's context other than the client, and of failed responses.
var (
	errRequestTimeout = errors.New("request timeout")
	errNoEndpoints    = errors.New("no endpoint")
	errTooManyFields  = errors.New("too many response header fields")
)

// Log lines that users search for, as Envoy writes them at debug level.
const (
	logUpstreamReset = "upstream reset: reset reason: "
	logLocalReply    = "Sending local reply with details "
)

// reply is a response of the gateway's own.
type reply struct {
	status  int // 0: no response; the client's connection is closed or its stream reset
	body    string
	outcome accesslog.Outcome
	reason  string // of the upstream's reset, or ""
	failure string // of the upstream's transport, or ""
}

// reset returns the reply for an upstream that failed before its response. failure is Envoy's description of the
// transport's error, or "".
func reset(x *exchange, status int, flag, reason, failure string) reply {
	details := reason
	if failure != "" {
		details += "|" + failure
	}
	return reply{
		status:  status,
		body:    accesslog.ResetBody(reason, x.retried),
		outcome: accesslog.Before(flag, details),
		reason:  reason,
		failure: strings.ReplaceAll(failure, " ", "_"),
	}
}

// replyTo returns the reply to a request that failed with err. ctx is the request's, with one of the causes above; x has
// the state of its body and connection.
func replyTo(ctx context.Context, x *exchange, err error) reply {
	cause := context.Cause(ctx)
	var connect *connectError
	switch {
	case errors.Is(cause, httpdrain.ErrLastCall):
		return reply{status: http.StatusServiceUnavailable, body: accesslog.BodyLastCall, outcome: accesslog.LastCall}
	case errors.Is(cause, errRequestTimeout):
		return reply{status: http.StatusGatewayTimeout, body: accesslog.BodyResponseTimeout, outcome: accesslog.ResponseTimeout}
	case errors.Is(cause, errConnectionTermination):
		return reset(x, http.StatusServiceUnavailable, accesslog.FlagTerminated, accesslog.ReasonTerminated, "")
	case cause != nil:
		return reply{outcome: accesslog.ClientClosed}
	case x.bodyError() != nil:
		return replyToBody(x.bodyError())
	case errors.Is(err, errNoEndpoints):
		return reply{status: http.StatusServiceUnavailable, body: accesslog.BodyNoHealthy, outcome: accesslog.NoHealthy}
	case errors.As(err, &connect):
		return replyToConnect(x, connect)
	case errors.Is(err, errTooManyFields):
		return reset(x, http.StatusBadGateway, accesslog.FlagProtocolError, accesslog.ReasonProtocolError, "")
	case x.spoken == H2C:
		reason, flag, status := h2cErrorOf(err).outcome()
		return reset(x, status, flag, reason, "")
	case x.conn != nil && x.conn.endedBetweenMessages():
		return reset(x, http.StatusServiceUnavailable, accesslog.FlagTerminated, accesslog.ReasonTerminated, "")
	}
	return reset(x, http.StatusBadGateway, accesslog.FlagProtocolError, accesslog.ReasonProtocolError, "")
}

// replyToBody returns the reply to a request whose body could not be read: the client went away, or the body is
// malformed.
func replyToBody(err error) reply {
	var netErr net.Error
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &netErr) {
		return reply{outcome: accesslog.ClientClosed}
	}
	return reply{status: http.StatusBadRequest, body: "Bad Request", outcome: accesslog.InvalidHTTP1}
}

func replyToConnect(x *exchange, err *connectError) reply {
	flag := accesslog.FlagConnectFailed
	reason, failure := err.reason()
	switch {
	case reason == accesslog.ReasonOverflow:
		flag = accesslog.FlagOverflow
	case x.retried:
		flag = accesslog.FlagRetriesExhausted
	}
	return reset(x, http.StatusServiceUnavailable, flag, reason, failure)
}

// answer sends r, or ends the client's connection or stream.
func (g *Gateway) answer(x *exchange, r reply, err error) {
	x.outcome, x.failure = r.outcome, r.failure
	log := g.log.With("method", x.request.Method, "path", x.request.URL.Path, "upstream", x.upstream())
	if r.reason != "" && r.failure == "" { // logAttempt has logged failed connections
		log.DebugContext(x.request.Context(), logUpstreamReset+r.reason, "error", err)
	}
	if r.status == 0 {
		panic(http.ErrAbortHandler)
	}
	log.DebugContext(x.request.Context(), logLocalReply+r.outcome.Details, "status", r.status)
	h := x.Header()
	clear(h)
	if x.request.ProtoMajor == 2 && isGRPC(x.request.Header) {
		answerGRPC(x, r)
		return
	}
	if r.body != "" {
		h.Set("Content-Type", "text/plain")
	}
	h.Set("Content-Length", strconv.Itoa(len(r.body)))
	h.Set("Server", accesslog.Server)
	x.WriteHeader(r.status)
	if x.request.Method != http.MethodHead {
		_, _ = io.WriteString(x, r.body) // x records errors of the client
	}
}

// answerGRPC sends r as a trailers-only response of gRPC, with the status of Envoy's httpToGrpcStatus: clients may retry
// UNAVAILABLE.
func answerGRPC(x *exchange, r reply) {
	code := "2"
	switch r.status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		code = grpc.Unavailable
	case http.StatusBadRequest:
		code = "13"
	case http.StatusNotFound:
		code = "12"
	}
	h := x.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", code)
	if r.body != "" {
		h.Set("Grpc-Message", r.body)
	}
	h.Set("Server", accesslog.Server)
	x.WriteHeader(http.StatusOK)
}
