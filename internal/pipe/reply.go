package pipe

import (
	"net/http"
	"strconv"
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
	b := make([]byte, 0, 256+len(r.body))
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(r.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(r.status)...)
	b = append(b, "\r\ncontent-length: "...)
	b = strconv.AppendInt(b, int64(len(r.body)), 10)
	b = append(b, "\r\ncontent-type: text/plain\r\ndate: "...)
	b = time.Now().UTC().AppendFormat(b, http.TimeFormat)
	if r == &replyRestarting {
		b = append(b, "\r\nretry-after: "+retryAfter...)
	}
	b = append(b, "\r\nserver: "+accesslog.Server+"\r\nconnection: close\r\n\r\n"...)
	if !isHead {
		b = append(b, r.body...)
	}
	return b
}

// retryAfter is the Retry-After of a reply during a restart of the app, seconds.
const retryAfter = "1"
