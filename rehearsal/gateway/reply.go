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

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// fail responds to a request that got no response from an endpoint.
func (x *exchange) fail(_ http.ResponseWriter, _ *http.Request, err error) {
	var connect *connectError
	switch cause := context.Cause(x.ctx); {
	case errors.Is(cause, errTerminated):
		x.reset(http.StatusServiceUnavailable, accesslog.FlagTerminated, accesslog.ReasonTerminated, err)
	case cause != nil || x.bodyErr.Load(): // the client has closed its connection
		x.outcome = accesslog.ClientClosed
		panic(http.ErrAbortHandler)
	case errors.Is(err, errNoEndpoints):
		x.outcome = accesslog.NoHealthy
		x.reply(http.StatusServiceUnavailable, accesslog.BodyNoHealthy)
	case errors.As(err, &connect):
		x.refused(connect)
	case x.malformed:
		x.reset(http.StatusBadGateway, accesslog.FlagProtocolError, accesslog.ReasonProtocolError, err)
	default:
		x.reset(http.StatusServiceUnavailable, accesslog.FlagTerminated, accesslog.ReasonTerminated, err)
	}
}

// refused responds when no endpoint has accepted a connection.
func (x *exchange) refused(err *connectError) {
	flag := accesslog.FlagConnectFailed
	if x.retried {
		flag = accesslog.FlagRetriesExhausted
	}
	reason := accesslog.ReasonConnectFailed
	var errno syscall.Errno
	var netErr net.Error
	switch {
	case errors.As(err, &errno):
		text := errno.Error()
		x.failure = strings.ReplaceAll("delayed connect error: "+strings.ToUpper(text[:1])+text[1:], " ", "_")
	case errors.As(err, &netErr) && netErr.Timeout():
		reason = accesslog.ReasonConnectTimeout
	}
	x.reset(http.StatusServiceUnavailable, flag, reason, err)
}

// reset responds when an endpoint failed before its response.
func (x *exchange) reset(status int, flag, reason string, err error) {
	x.gateway.log.Debug("upstream reset: reset reason: "+reason, "endpoint", x.endpoint.address, "error", err)
	details := reason
	if x.failure != "" {
		details += "|" + x.failure
	}
	x.outcome = accesslog.Before(flag, details)
	x.reply(status, accesslog.ResetBody(reason, x.retried))
}

// reply sends a response of the gateway's own, in Envoy's form.
func (x *exchange) reply(status int, body string) {
	h := x.Header()
	clear(h)
	h.Set("Content-Type", "text/plain")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Server", accesslog.Server)
	x.WriteHeader(status)
	if x.request.Method != http.MethodHead {
		_, _ = io.WriteString(x, body) // x records errors of the client
	}
}
