package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
)

// Ends of a request's context that are not the client's.
var (
	errRequestTimeout = errors.New("the request timeout has passed")
	errShutdown       = errors.New("the gateway's shutdown timeout has passed")
	errNoEndpoints    = errors.New("there is no endpoint")
)

// Envoy's names (CoreResponseFlag's short strings and ResponseCodeDetails).
const (
	flagNone                 = "-"
	flagNoHealthyUpstream    = "UH"
	flagConnectFailure       = "UF"
	flagTermination          = "UC"
	flagProtocolError        = "UPE"
	flagTimeout              = "UT"
	flagNoRoute              = "NR"
	flagDownstreamGone       = "DC"
	flagDownstreamProtocol   = "DPE"
	flagLocalReset           = "LR"
	detailsViaUpstream       = "via_upstream"
	detailsNoHealthyUpstream = "no_healthy_upstream"
	detailsTimeout           = "response_timeout"
	detailsNoRoute           = "route_not_found"
	detailsDownstreamGone    = "downstream_remote_disconnect"
	detailsDownstreamCodec   = "http1.codec_error"
	detailsShutdown          = "gateway_shutdown" // not Envoy's: it has no line for it
	detailsResetBefore       = "upstream_reset_before_response_started"
	detailsResetAfter        = "upstream_reset_after_response_started"

	reasonRemoteFailure  = "remote connection failure"
	reasonLocalFailure   = "local connection failure"
	reasonConnectTimeout = "connection timeout"
	reasonTermination    = "connection termination"
	reasonProtocolError  = "protocol error"
)

// Log lines that users grep for, as Envoy writes them at debug level.
const (
	logUpstreamReset = "upstream reset: reset reason: "
	logLocalReply    = "Sending local reply with details "
)

const resetBody = "upstream connect error or disconnect/reset before headers. reset reason: "

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

func reset(status int, flag, reason string) reply {
	return reply{
		status:  status,
		body:    resetBody + reason,
		flag:    flag,
		details: detailsResetBefore + "{" + strings.ReplaceAll(reason, " ", "_") + "}",
		reason:  reason,
	}
}

// replyTo decides what a request without an answer gets. ctx is the request's,
// with the causes above; x knows what happened to its body and connection.
func replyTo(ctx context.Context, x *exchange, err error) reply {
	cause := context.Cause(ctx)
	var connect *connectError
	switch {
	case errors.Is(cause, errShutdown):
		return reply{flag: flagLocalReset, details: detailsShutdown}
	case errors.Is(cause, errRequestTimeout):
		return reply{status: http.StatusGatewayTimeout, body: "upstream request timeout", flag: flagTimeout, details: detailsTimeout}
	case errors.Is(cause, errConnectionTermination):
		return reset(http.StatusServiceUnavailable, flagTermination, reasonTermination)
	case cause != nil:
		return reply{flag: flagDownstreamGone, details: detailsDownstreamGone}
	case x.bodyError() != nil:
		return replyToBody(x.bodyError())
	case errors.Is(err, errNoEndpoints):
		return reply{status: http.StatusServiceUnavailable, body: "no healthy upstream", flag: flagNoHealthyUpstream, details: detailsNoHealthyUpstream}
	case errors.As(err, &connect):
		return replyToConnect(connect)
	case x.conn != nil && x.conn.hasEnded():
		return reset(http.StatusServiceUnavailable, flagTermination, reasonTermination)
	}
	return reset(http.StatusBadGateway, flagProtocolError, reasonProtocolError)
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

func replyToConnect(err *connectError) reply {
	reason := reasonRemoteFailure
	var netErr net.Error
	var errno syscall.Errno
	if errors.As(err.err, &errno) {
		switch errno {
		case syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS:
			reason = reasonLocalFailure
		}
	} else if errors.As(err.err, &netErr) && netErr.Timeout() {
		reason = reasonConnectTimeout
	}
	r := reset(http.StatusServiceUnavailable, flagConnectFailure, reason)
	if errno != 0 {
		text := errno.Error()
		r.failure = "delayed_connect_error:_" + strings.ToUpper(text[:1]) + strings.ReplaceAll(text[1:], " ", "_")
	}
	return r
}

// answer sends r, or breaks the client's connection or stream off.
func (g *Gateway) answer(x *exchange, r reply, err error) {
	x.flag, x.details, x.failure = r.flag, r.details, r.failure
	log := g.log.With("method", x.request.Method, "path", x.request.URL.Path, "upstream", x.upstream())
	if r.reason != "" {
		log.DebugContext(x.request.Context(), logUpstreamReset+r.reason, "error", err)
	}
	if r.status == 0 {
		panic(http.ErrAbortHandler)
	}
	log.DebugContext(x.request.Context(), logLocalReply+r.details, "status", r.status)
	h := x.Header()
	clear(h)
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
