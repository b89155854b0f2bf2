package pipe

import (
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// reply is a local reply in place of the app's response. Bodies and fields are Envoy's, as users' tools and dashboards
// expect them. Connection: close is always there: the connection to the app ends too.
type reply struct {
	status int
	body   string
}

var (
	replyTerminated      = reply{503, accesslog.ResetBody(accesslog.ReasonTerminated, false)}
	replyConnectFailed   = reply{503, accesslog.ResetBody(accesslog.ReasonConnectFailed, false)}
	replyOverflow        = reply{503, accesslog.ResetBody(accesslog.ReasonOverflow, false)}
	replyResponseTimeout = reply{504, accesslog.BodyResponseTimeout}
	replyProtocolError   = reply{502, accesslog.ResetBody(accesslog.ReasonProtocolError, false)}
	replyBadRequest      = reply{400, "Bad Request"}
	replyTimeout         = reply{408, "Request Timeout"}
	replyLineTooLong     = reply{414, "URI Too Long"}
	replyTooLarge        = reply{431, "Request Header Fields Too Large"}
	replyNoCoding        = reply{501, "Not Implemented"}
	replyVersion         = reply{505, "HTTP Version Not Supported"}
	replyRestarting      = reply{503, "the app is restarting and has not come back in time"}
	replyLastCall        = reply{503, accesslog.BodyLastCall}
)

// replyFor is the reply to a request head or body that is invalid.
func replyFor(err error) *reply {
	switch http1.StatusOf(err) {
	case http.StatusRequestHeaderFieldsTooLarge:
		return &replyTooLarge
	case http.StatusNotImplemented:
		return &replyNoCoding
	case http.StatusHTTPVersionNotSupported:
		return &replyVersion
	}
	return &replyBadRequest
}

// message is the reply's text for gRPC.
func (r *reply) message() string {
	if r == &replyLastCall {
		return accesslog.MessageLastCall
	}
	return r.body
}

func (r *reply) bytes(isHead bool) []byte {
	fields := "server: " + accesslog.Server + "\r\n"
	if r == &replyRestarting {
		fields = "retry-after: " + retryAfter + "\r\n" + fields
	}
	return http1.AppendResponse(make([]byte, 0, 256+len(r.body)), r.status, fields, r.body, isHead, time.Now())
}

// retryAfter is the Retry-After of a reply during a restart of the app, seconds.
const retryAfter = "1"
