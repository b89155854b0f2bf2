package pipe

import (
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// The local replies.
var (
	replyConnectFailed   = accesslog.Reply{Status: 503, Body: accesslog.ResetBody(accesslog.ReasonConnectFailed, false)}
	replyOverflow        = accesslog.Reply{Status: 503, Body: accesslog.ResetBody(accesslog.ReasonOverflow, false)}
	replyResponseTimeout = accesslog.Reply{Status: 504, Body: accesslog.BodyResponseTimeout}
	replyProtocolError   = accesslog.Reply{Status: 502, Body: accesslog.ResetBody(accesslog.ReasonProtocolError, false)}
	replyBadRequest      = accesslog.Reply{Status: 400, Body: "Bad Request"}
	replyTimeout         = accesslog.Reply{Status: 408, Body: "Request Timeout"}
	replyLineTooLong     = accesslog.Reply{Status: 414, Body: "URI Too Long"}
	replyTooLarge        = accesslog.Reply{Status: 431, Body: "Request Header Fields Too Large"}
	replyNoCoding        = accesslog.Reply{Status: 501, Body: "Not Implemented"}
	replyVersion         = accesslog.Reply{Status: 505, Body: "HTTP Version Not Supported"}
	replyRestarting      = accesslog.Reply{Status: 503, Body: "the app is starting and does not serve in time",
		RetryAfter: "1"}
	replyLastCall = accesslog.Reply{Status: 503, Body: accesslog.BodyLastCall,
		GRPCMessage: accesslog.MessageLastCall}
)

// replyFor is the reply to a request head or body that is invalid.
func replyFor(err error) *accesslog.Reply {
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

// replyBytes is a reply in HTTP/1.1. It announces the close: the connection to the app ends too.
func replyBytes(r *accesslog.Reply, isHead bool) []byte {
	fields := "server: " + accesslog.Server + "\r\n"
	if r.RetryAfter != "" {
		fields = "retry-after: " + r.RetryAfter + "\r\n" + fields
	}
	return http1.AppendResponse(make([]byte, 0, 256+len(r.Body)), r.Status, fields, r.Body, isHead, time.Now())
}
