package gateway

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
)

// accessLog writes a line for each request, unbuffered: users look for the last request's line.
type accessLog struct {
	mu  sync.Mutex // one Write at a time
	w   io.Writer
	log *slog.Logger // reports errors of w

	throttle logs.Throttle
}

func (a *accessLog) write(x *exchange, end time.Time) {
	if a.w == nil {
		return
	}
	line := x.entry().AppendText(make([]byte, 0, 512), end)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.w.Write(line); err != nil {
		a.throttle.Warn(a.log, time.Minute, "cannot write access log; dropping lines", "error", err)
	}
}

func (x *exchange) entry() *accesslog.Entry {
	r := x.request
	e := &accesslog.Entry{
		Began: x.begin, Method: r.Method, Path: path(r), Protocol: protocol(r),
		Status: x.status, Outcome: x.outcome, UpstreamFailure: x.failure,
		Received: uint64(x.received.Load()), Sent: uint64(x.sent.Load()),
		ForwardedFor: forwardedFor(r), UserAgent: r.UserAgent(), RequestID: r.Header.Get("X-Request-Id"), Authority: r.Host,
		Upstream: x.upstream(), Cluster: x.cluster(), Downstream: r.RemoteAddr, Route: x.routeName(),
	}
	if x.serviceTime >= 0 {
		e.FirstByte = x.begin.Add(x.serviceTime)
	}
	if x.conn != nil {
		e.UpstreamLocal = x.conn.LocalAddr().String()
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		e.DownstreamLocal = local.String()
	}
	if r.TLS != nil {
		e.ServerName = r.TLS.ServerName
	}
	return e
}

func path(r *http.Request) string {
	if r.Method == http.MethodConnect {
		return "-"
	}
	return r.URL.RequestURI()
}

// protocol returns Envoy's name for the protocol version.
func protocol(r *http.Request) string {
	if r.ProtoMajor == 2 {
		return "HTTP/2"
	}
	return r.Proto
}
