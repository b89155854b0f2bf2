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
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

// Ends of a request's context that are not the client's.
var (
	errRequestTimeout = errors.New("the request timeout has passed")
	errNoEndpoints    = errors.New("there is no endpoint")
	errTooManyFields  = errors.New("the response has more fields than are allowed")
)

// Envoy's names (CoreResponseFlag's short strings and ResponseCodeDetails).
const (
	flagNone                 = "-"
	flagNoHealthyUpstream    = "UH"
	flagConnectFailure       = "UF"
	flagOverflow             = "UO"
	flagRetriesExhausted     = "URX,UF" // retries are only for connections that were not made
	flagTermination          = "UC"
	flagProtocolError        = "UPE"
	flagRemoteReset          = "UR"
	flagTimeout              = "UT"
	flagNoRoute              = "NR"
	flagDownstreamGone       = "DC"
	flagDownstreamProtocol   = "DPE"
	flagDuration             = "DT" // ended by a time limit, as the pipe says
	detailsViaUpstream       = "via_upstream"
	detailsNoHealthyUpstream = "no_healthy_upstream"
	detailsTimeout           = "response_timeout"
	detailsNoRoute           = "route_not_found"
	detailsDownstreamGone    = "downstream_remote_disconnect"
	detailsDownstreamCodec   = "http1.codec_error"
	detailsLastCall          = "last_call" // not Envoy's: it has no line for it
	detailsResetBefore       = "upstream_reset_before_response_started"
	detailsResetAfter        = "upstream_reset_after_response_started"

	reasonRemoteFailure  = "remote connection failure"
	reasonLocalFailure   = "local connection failure"
	reasonConnectTimeout = "connection timeout"
	reasonOverflow       = "overflow"
	reasonTermination    = "connection termination"
	reasonProtocolError  = "protocol error"
	reasonRemoteReset    = "remote reset"
	reasonRefused        = "remote refused stream reset"
)

// Log lines that users grep for, as Envoy writes them at debug level.
const (
	logUpstreamReset = "upstream reset: reset reason: "
	logLocalReply    = "Sending local reply with details "
)

const (
	resetBody      = "upstream connect error or disconnect/reset before headers. reset reason: "
	resetBodyAgain = "upstream connect error or disconnect/reset before headers. retried and the latest reset reason: "
)

// lastCallBody is the pipe's word.
const lastCallBody = "the server is shutting down and the request was not finished before its deadline"

// serverName is what Envoy puts into its local replies, and is kept with their
// bodies: people and tools tell a gateway's 503 from an app's by it.
const serverName = "envoy"

// reply is an answer of the gateway's own.
type reply struct {
	status  int // 0: none is sent, the client's connection or stream is broken off
	body    string
	flag    string
	details string
	reason  string // of the upstream's reset, if it was one
	failure string // of the upstream's transport
}

// reset is the reply to an upstream's end before the response. failure is the
// transport's, in Envoy's words, or "".
func reset(x *exchange, status int, flag, reason, failure string) reply {
	body := resetBody
	if x.retried {
		body = resetBodyAgain
	}
	details := reason
	if failure != "" {
		details += "|" + failure
	}
	return reply{
		status:  status,
		body:    body + reason,
		flag:    flag,
		details: detailsResetBefore + "{" + strings.ReplaceAll(details, " ", "_") + "}",
		reason:  reason,
		failure: strings.ReplaceAll(failure, " ", "_"),
	}
}

// replyTo decides what a request without an answer gets. ctx is the request's,
// with the causes above; x knows what happened to its body and connection.
func replyTo(ctx context.Context, x *exchange, err error) reply {
	cause := context.Cause(ctx)
	var connect *connectError
	switch {
	case errors.Is(cause, httpdrain.ErrLastCall):
		return reply{status: http.StatusServiceUnavailable, body: lastCallBody, flag: flagDuration, details: detailsLastCall}
	case errors.Is(cause, errRequestTimeout):
		return reply{status: http.StatusGatewayTimeout, body: "upstream request timeout", flag: flagTimeout, details: detailsTimeout}
	case errors.Is(cause, errConnectionTermination):
		return reset(x, http.StatusServiceUnavailable, flagTermination, reasonTermination, "")
	case cause != nil:
		return reply{flag: flagDownstreamGone, details: detailsDownstreamGone}
	case x.bodyError() != nil:
		return replyToBody(x.bodyError())
	case errors.Is(err, errNoEndpoints):
		return reply{status: http.StatusServiceUnavailable, body: "no healthy upstream", flag: flagNoHealthyUpstream, details: detailsNoHealthyUpstream}
	case errors.As(err, &connect):
		return replyToConnect(x, connect)
	case errors.Is(err, errTooManyFields):
		return reset(x, http.StatusBadGateway, flagProtocolError, reasonProtocolError, "")
	case x.spoken == H2C:
		reason, flag, status := resetReason(err)
		return reset(x, status, flag, reason, "")
	case x.conn != nil && x.conn.endedBetweenMessages():
		return reset(x, http.StatusServiceUnavailable, flagTermination, reasonTermination, "")
	}
	return reset(x, http.StatusBadGateway, flagProtocolError, reasonProtocolError, "")
}

// replyToBody is for a request whose body could not be read: the client left in
// its midst, or what it sent is no body.
func replyToBody(err error) reply {
	var netErr net.Error
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &netErr) {
		return reply{flag: flagDownstreamGone, details: detailsDownstreamGone}
	}
	return reply{status: http.StatusBadRequest, body: "Bad Request", flag: flagDownstreamProtocol, details: detailsDownstreamCodec}
}

func replyToConnect(x *exchange, err *connectError) reply {
	flag := flagConnectFailure
	reason, failure := err.reason()
	switch {
	case reason == reasonOverflow:
		flag = flagOverflow
	case x.retried:
		flag = flagRetriesExhausted
	}
	return reset(x, http.StatusServiceUnavailable, flag, reason, failure)
}

// answer sends r, or breaks the client's connection or stream off.
func (g *Gateway) answer(x *exchange, r reply, err error) {
	x.flag, x.details, x.failure = r.flag, r.details, r.failure
	log := g.log.With("method", x.request.Method, "path", x.request.URL.Path, "upstream", x.upstream())
	if r.reason != "" && r.failure == "" { // a connection that was not made has been told of
		log.DebugContext(x.request.Context(), logUpstreamReset+r.reason, "error", err)
	}
	if r.status == 0 {
		panic(http.ErrAbortHandler)
	}
	log.DebugContext(x.request.Context(), logLocalReply+r.details, "status", r.status)
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
	h.Set("Server", serverName)
	x.WriteHeader(r.status)
	if x.request.Method != http.MethodHead {
		_, _ = io.WriteString(x, r.body) // what fails here is the client's end, and noted by x
	}
}

// answerGRPC says it in gRPC's way, in a response of trailers only: UNAVAILABLE, which
// clients may retry, for what Envoy says so for (its httpToGrpcStatus), else UNKNOWN.
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
	h.Set("Server", serverName)
	x.WriteHeader(http.StatusOK)
}
