// Package accesslog writes access log lines as Istio's Envoys do, and holds Envoy's names for how a request ends:
// response flags, response code details and the bodies of local replies. Tools and dashboards match on them.
package accesslog

import (
	"cmp"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
)

// Entry is one line: a request, or a connection of an opaque protocol. Empty strings are written as "-" or null.
type Entry struct {
	Began                                                time.Time
	FirstByte                                            time.Time // of the response's head; zero if none
	Method, Path, Protocol                               string
	ForwardedFor, UserAgent, RequestID, Authority        string
	Cluster, Route                                       string
	Upstream, UpstreamLocal, Downstream, DownstreamLocal string
	UpstreamFailure                                      string // of the upstream's transport
	Received, Sent                                       uint64
	Status                                               int
	Outcome

	HasTLS                                    bool // the line has TLS fields
	TLSVersion, ServerName, ALPN, PeerSubject string
}

// Held is how many bytes of client input the entry holds.
func (e *Entry) Held() int {
	return len(e.Method) + len(e.Path) + len(e.ForwardedFor) + len(e.UserAgent) + len(e.RequestID) + len(e.Authority)
}

// AppendText appends the line in Istio's default format (EnvoyTextLogFormat in pilot/pkg/model/telemetry_logging.go):
//
//	[%START_TIME%] "%METHOD% %PATH% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%
//	%CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT%
//	%DURATION% %UPSTREAM_SERVICE_TIME% "%X_FORWARDED_FOR%" "%USER_AGENT%" "%X_REQUEST_ID%" "%AUTHORITY%"
//	"%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS%
//	%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%
//
// Durations are in milliseconds. UPSTREAM_SERVICE_TIME is measured here. CONNECTION_TERMINATION_DETAILS is always "-":
// only Envoy filters that do not exist here set it.
func (e *Entry) AppendText(b []byte, now time.Time) []byte {
	b = append(b, '[')
	b = e.Began.UTC().AppendFormat(b, startTime)
	b = append(b, `] "`...)
	b = append(appendOr(b, e.Method), ' ')
	b = append(appendOr(b, e.Path), ' ')
	b = append(appendOr(b, e.Protocol), `" `...)
	b = append(strconv.AppendInt(b, int64(e.Status), 10), ' ')
	b = append(appendOr(b, e.Flags), ' ')
	b = append(appendOr(b, e.Details), ` - "`...)
	b = append(appendOr(b, e.UpstreamFailure), `" `...)
	b = append(strconv.AppendUint(b, e.Received, 10), ' ')
	b = append(strconv.AppendUint(b, e.Sent, 10), ' ')
	b = append(strconv.AppendInt(b, now.Sub(e.Began).Milliseconds(), 10), ' ')
	if e.FirstByte.IsZero() {
		b = append(b, '-')
	} else {
		b = strconv.AppendInt(b, e.FirstByte.Sub(e.Began).Milliseconds(), 10)
	}
	for _, s := range [...]string{e.ForwardedFor, e.UserAgent, e.RequestID, e.Authority, e.Upstream} {
		b = append(b, ` "`...)
		b = append(appendOr(b, s), '"')
	}
	for _, s := range [...]string{e.Cluster, e.UpstreamLocal, e.DownstreamLocal, e.Downstream, e.ServerName, e.Route} {
		b = appendOr(append(b, ' '), s)
	}
	return append(b, '\n')
}

// startTime is Envoy's time format.
const startTime = "2006-01-02T15:04:05.000Z"

// appendOr prevents client input from forging lines or fields.
func appendOr(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	return logs.AppendText(b, s)
}

// AppendJSON appends the line under Istio's names, in alphabetical order as Envoy does, with null for missing values.
// A connection with TLS has additional members, named after Envoy's operators.
func (e *Entry) AppendJSON(b []byte, now time.Time) []byte {
	name := func(s string) {
		b = append(append(append(b, '"'), s...), `":`...)
	}
	text := func(member, s string) {
		name(member)
		if s == "" {
			b = append(b, "null,"...)
			return
		}
		b = append(logs.AppendJSON(append(b, '"'), s), `",`...)
	}
	number := func(member string, n int64) {
		name(member)
		b = append(strconv.AppendInt(b, n, 10), ',')
	}
	b = append(b, '{')
	text("authority", e.Authority)
	number("bytes_received", int64(e.Received))
	number("bytes_sent", int64(e.Sent))
	text("connection_termination_details", "")
	if e.HasTLS {
		text("downstream_alpn", e.ALPN)
	}
	text("downstream_local_address", e.DownstreamLocal)
	if e.HasTLS {
		text("downstream_peer_subject", e.PeerSubject)
	}
	text("downstream_remote_address", e.Downstream)
	if e.HasTLS {
		text("downstream_tls_version", e.TLSVersion)
	}
	number("duration", now.Sub(e.Began).Milliseconds())
	text("method", e.Method)
	text("path", e.Path)
	text("protocol", e.Protocol)
	text("request_id", e.RequestID)
	text("requested_server_name", e.ServerName)
	number("response_code", int64(e.Status))
	text("response_code_details", e.Details)
	text("response_flags", cmp.Or(e.Flags, "-")) // as Envoy writes it
	text("route_name", e.Route)
	name("start_time")
	b = append(b, '"')
	b = append(e.Began.UTC().AppendFormat(b, startTime), `",`...)
	text("upstream_cluster", e.Cluster)
	text("upstream_host", e.Upstream)
	text("upstream_local_address", e.UpstreamLocal)
	if e.FirstByte.IsZero() {
		text("upstream_service_time", "")
	} else {
		text("upstream_service_time", strconv.FormatInt(e.FirstByte.Sub(e.Began).Milliseconds(), 10))
	}
	text("upstream_transport_failure_reason", e.UpstreamFailure)
	text("user_agent", e.UserAgent)
	text("x_forwarded_for", e.ForwardedFor)
	b[len(b)-1] = '}'
	return append(b, '\n')
}
