package gateway

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/logs"
)

// accessLog writes a line for each request, at once and unbuffered: the last
// request's line is the one that people look for.
//
// The format is Istio's default (EnvoyTextLogFormat of pilot/pkg/model/
// telemetry_logging.go) with all of its fields. RESP(X-ENVOY-UPSTREAM-SERVICE-TIME) is
// measured; the gateway adds no such header. A time is in milliseconds.
//
//	[START_TIME] "METHOD PATH PROTOCOL" CODE FLAGS DETAILS CONNECTION_TERMINATION_DETAILS
//	"UPSTREAM_TRANSPORT_FAILURE_REASON" BYTES_RECEIVED BYTES_SENT DURATION SERVICE_TIME "X-FORWARDED-FOR"
//	"USER-AGENT" "X-REQUEST-ID" "AUTHORITY" "UPSTREAM_HOST" CLUSTER UPSTREAM_LOCAL DOWNSTREAM_LOCAL
//	DOWNSTREAM_REMOTE SERVER_NAME ROUTE
type accessLog struct {
	mu  sync.Mutex // one Write at a time
	w   io.Writer
	log *slog.Logger // reports what w refuses

	throttle logs.Throttle
}

func (a *accessLog) write(x *exchange, end time.Time) {
	if a.w == nil {
		return
	}
	line := appendLine(x, end)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.w.Write(line); err != nil {
		a.throttle.Warn(a.log, time.Minute, "lines of the access log are lost", "error", err)
	}
}

func appendLine(x *exchange, end time.Time) []byte {
	r := x.request
	b := make([]byte, 0, 512)
	field := func(s string) {
		if s == "" {
			s = "-"
		}
		b = append(append(b, ' '), s...)
	}
	quoted := func(s string) {
		if s == "" {
			s = "-"
		}
		b = append(append(append(b, ' ', '"'), s...), '"')
	}
	number := func(n int64) { b = strconv.AppendInt(append(b, ' '), n, 10) }
	address := func(a net.Addr) {
		if a == nil {
			field("")
		} else {
			field(a.String())
		}
	}

	b = append(b, '[')
	b = x.begin.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, ']')
	quoted(r.Method + " " + path(r) + " " + protocol(r))
	number(int64(x.status))
	field(x.flag)
	field(x.details)
	field("") // connection termination details: only set by filters that the gateway has none of
	quoted(x.failure)
	number(x.received.Load())
	number(x.sent.Load())
	number(end.Sub(x.begin).Milliseconds())
	if x.serviceTime < 0 {
		field("")
	} else {
		number(x.serviceTime.Milliseconds())
	}
	quoted(forwardedFor(r))
	quoted(r.UserAgent())
	quoted(r.Header.Get("X-Request-Id"))
	quoted(r.Host)
	quoted(x.upstream())
	field(x.cluster())
	if x.conn != nil {
		address(x.conn.LocalAddr())
	} else {
		field("")
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	address(local)
	field(r.RemoteAddr)
	if r.TLS != nil {
		field(r.TLS.ServerName)
	} else {
		field("")
	}
	field(x.routeName())
	return append(b, '\n')
}

func path(r *http.Request) string {
	if r.Method == http.MethodConnect {
		return "-"
	}
	return r.URL.RequestURI()
}

// protocol is Envoy's name of it.
func protocol(r *http.Request) string {
	if r.ProtoMajor == 2 {
		return "HTTP/2"
	}
	return r.Proto
}
