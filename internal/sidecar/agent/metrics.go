package agent

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/outbound"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// metrics are read at the time of the scrape: nothing is counted twice.
type metrics struct {
	registry *prometheus.Registry
	phases   *phases
	plane    atomic.Pointer[drain.DataPlane] // called while the drain calls it: the pipe and Envoy's data plane allow that
	cut      *prometheus.CounterVec

	scrapeFailed *prometheus.CounterVec
	hookRefused  prometheus.Counter
	restarts     prometheus.Counter
	outbound     atomic.Pointer[outbound.Proxy]
}

var (
	descPhase     = desc("lastcall_drain_phase", "1 for the current phase of the termination.", "phase")
	descDuration  = desc("lastcall_drain_duration_seconds", "Duration of the current termination, or of the latest.")
	descRemaining = desc("lastcall_deadline_remaining_seconds",
		"Time until the platform's SIGKILL, during a termination.")
	descConnections = desc("lastcall_connections", "Open inbound connections.", "state")
	descRaced       = desc("lastcall_requests_raced_total",
		"Connections that were closed while a request was arriving.")
	descTruncated = desc("lastcall_responses_truncated_total", "Responses that the app did not complete.")
	descRefused   = desc("lastcall_requests_refused_total",
		"Requests refused because they were malformed, too large or too slow, by the response's status; other: HTTP/2 requests, and connections.",
		"code")
	descAcceptError = desc("lastcall_accept_errors_total", "Failed accepts: no descriptors, no memory.")

	descOutbound       = desc("lastcall_outbound_connections", "Open outbound connections of the app.")
	descOutboundTotal  = desc("lastcall_outbound_connections_total", "Outbound connections of the app.")
	descOutboundFailed = desc("lastcall_outbound_failures_total",
		"Outbound connections whose destination was unreachable.")

	// Envoy's names, for existing dashboards.
	descCxActive      = desc("envoy_http_downstream_cx_active", "Open inbound connections.", envoyLabel)
	descCxTotal       = desc("envoy_http_downstream_cx_total", "Accepted inbound connections.", envoyLabel)
	descRqActive      = desc("envoy_http_downstream_rq_active", "Busy inbound connections.", envoyLabel)
	descRqTotal       = desc("envoy_http_downstream_rq_total", "Inbound requests.", envoyLabel)
	descRqXX          = desc("envoy_http_downstream_rq_xx", "Responses by class.", "envoy_response_code_class", envoyLabel)
	descConnectFailed = desc("envoy_cluster_upstream_cx_connect_fail",
		"Failed connections to the app.", "envoy_cluster_name")
)

const (
	envoyLabel   = "envoy_http_conn_manager_prefix"
	envoyPrefix  = "inbound"
	envoyCluster = "inbound"
)

// desc describes a metric with labels.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func newMetrics(p *phases, more ...prometheus.Collector) *metrics {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	m := &metrics{
		registry: prometheus.NewRegistry(),
		phases:   p,
		cut: prometheus.NewCounterVec(counter("lastcall_requests_cut_total",
			"Requests and connections ended by the last call, by the kind of ending."), []string{"reason"}),
		scrapeFailed: prometheus.NewCounterVec(counter("lastcall_scrape_failures_total",
			"Scrapes that lack the metrics of the proxy or the app."), []string{"of"}),
		hookRefused: prometheus.NewCounter(counter("lastcall_hook_refused_total",
			"Hooks refused because they lack the pod's token.")),
		restarts: prometheus.NewCounter(counter("lastcall_app_restarts_total",
			"Restarts of an app container in a pod that kept running.")),
	}
	for _, reason := range []string{"503", "truncated", "fin", "ended", "close 1001"} {
		m.cut.WithLabelValues(reason)
	}
	m.registry.MustRegister(m, m.cut, m.scrapeFailed, m.hookRefused, m.restarts)
	m.registry.MustRegister(more...)
	// The app may be a Go program whose metrics are in the same scrape.
	prometheus.WrapRegistererWithPrefix("lastcall_", m.registry).MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) watch(p drain.DataPlane) { m.plane.Store(&p) }

// count adds a termination's losses.
func (m *metrics) count(r drain.Report) {
	for _, c := range r.Open {
		m.cut.WithLabelValues(c.Ending).Inc()
	}
}

// Describe sends nothing: the set of series depends on the phase.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// sendTo returns functions that send one value.
func sendTo(out chan<- prometheus.Metric) (gauge func(*prometheus.Desc, float64, ...string),
	counter func(*prometheus.Desc, uint64, ...string)) {
	gauge = func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter = func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	return gauge, counter
}

// Collect reads the current values.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge, counter := sendTo(out)
	now := m.phases.snapshot()
	for p := drain.Serving; p <= drain.Done; p++ {
		v := 0.0
		if p == now.phase {
			v = 1
		}
		gauge(descPhase, v, p.String())
	}
	gauge(descDuration, now.duration.Seconds())
	if now.draining {
		gauge(descRemaining, max(0, now.remaining).Seconds())
	}
	if o := m.outbound.Load(); o != nil {
		s := o.Stats()
		gauge(descOutbound, float64(s.Open))
		counter(descOutboundTotal, s.Total)
		counter(descOutboundFailed, s.Failed)
	}
	plane := m.plane.Load()
	if plane == nil {
		return
	}
	activity, err := (*plane).Activity(context.Background())
	if err == nil && activity.Known {
		gauge(descConnections, float64(activity.Busy), "busy")
		gauge(descConnections, float64(activity.Connections-activity.Busy), "idle")
	}
	p := m.pipe()
	if p == nil { // Envoy has metrics of its own
		return
	}
	s := p.Stats()
	gauge(descCxActive, float64(activity.Connections), envoyPrefix)
	gauge(descRqActive, float64(activity.Busy), envoyPrefix)
	counter(descRaced, s.Raced)
	counter(descTruncated, s.Truncated)
	other := s.Refused
	for i, code := range counters.RefusedCodes {
		counter(descRefused, s.RefusedWith[i], strconv.Itoa(code))
		other -= s.RefusedWith[i]
	}
	counter(descRefused, other, "other")
	counter(descAcceptError, s.AcceptErrors)
	counter(descCxTotal, s.Connections, envoyPrefix)
	counter(descRqTotal, s.Requests, envoyPrefix)
	for i := 1; i < len(s.Responses); i++ {
		counter(descRqXX, s.Responses[i], strconv.Itoa(i), envoyPrefix)
	}
	counter(descConnectFailed, s.ConnectFailed, envoyCluster)
	collectPipe(out, p)
	for name, value := range counters.HTTP2ByName(s.H2) {
		counter(descH2[name], value)
	}
}

var (
	descByListener = desc("lastcall_listener_connections",
		"Open inbound connections of a listener.", "listener", "state")
	descListenerTotal = desc("lastcall_listener_connections_total",
		"Accepted inbound connections of a listener.", "listener")
	descRequestTime = desc("lastcall_request_duration_seconds",
		"Time from a request's head to the end of its response; class none: without a response.", "listener", "protocol", "response_class")
	descOverflowed = desc("lastcall_connections_refused_total",
		"Connections refused because of a listener's limit.", "listener")
	descEvicted = desc("lastcall_connections_evicted_total",
		"Connections ended because the memory for unfinished requests, or for connections, was used up, by what they were doing.",
		"listener", "kind")
	descUnfinished      = desc("lastcall_unfinished_bytes", "Memory that requests which are not complete hold.")
	descUnfinishedLimit = desc("lastcall_unfinished_limit_bytes", "Limit of lastcall_unfinished_bytes.")
	descIdleEnded       = desc("lastcall_idle_timeouts_total", "Connections ended by the idle timeout.", "listener")
	descResponseTimeout = desc("lastcall_response_timeouts_total",
		"Requests ended by the response timeout.", "listener")
	descOpaque = desc("lastcall_opaque_connections_total",
		"Connections forwarded as bytes, which count as busy while they are open, by the reason.", "listener", "kind")
	descLogLost = desc("lastcall_access_log_lost_total", "Access log lines that were not written.")

	descHandshakes     = desc("lastcall_tls_handshakes_total", "Successful TLS handshakes.", "listener", "resumed")
	descHandshakesFail = desc("lastcall_tls_handshake_failures_total", "Failed TLS handshakes.", "listener", "reason")
	descReloads        = desc("lastcall_certificate_reloads_total",
		"Reloads of a certificate's files; after a failed one the previous certificate stays in use.", "listener", "result")
	descNotAfter = desc("lastcall_certificate_expiry_timestamp_seconds",
		"When the current certificate expires.", "listener")
)

// collectPipe collects the metrics of each listener.
func collectPipe(out chan<- prometheus.Metric, p *pipe.Pipe) {
	gauge, counter := sendTo(out)
	for i, l := range p.Listeners() {
		name := l.Label()
		gauge(descByListener, float64(l.Busy), name, "busy")
		gauge(descByListener, float64(max(0, l.Open-l.Busy)), name, "idle")
		counter(descListenerTotal, l.Stats.Connections, name)
		counter(descOverflowed, l.Stats.Overflowed, name)
		for kind, n := range l.Stats.Evicted {
			counter(descEvicted, n, name, counters.Evicted(kind).String())
		}
		counter(descIdleEnded, l.Stats.IdleEnded, name)
		counter(descResponseTimeout, l.Stats.ResponseTimeouts, name)
		for kind, n := range l.Stats.Opaque {
			counter(descOpaque, n, name, counters.Opaque(kind).String())
		}
		for _, d := range p.Durations(i) {
			class := "none"
			if d.Class > 0 {
				class = strconv.Itoa(d.Class) + "xx"
			}
			buckets := make(map[float64]uint64, len(d.Buckets))
			for b, n := range d.Buckets {
				buckets[counters.Bounds[b]] = n
			}
			out <- prometheus.MustNewConstHistogram(descRequestTime, d.Count, d.Sum.Seconds(), buckets, name, d.Protocol, class)
		}
		if l.TLS == nil {
			continue
		}
		counter(descHandshakes, l.TLS.Full, name, "false")
		counter(descHandshakes, l.TLS.Resumed, name, "true")
		for reason, n := range l.TLS.Failures {
			counter(descHandshakesFail, n, name, reason)
		}
		counter(descReloads, l.TLS.Reloads-l.TLS.ReloadFailures, name, "read")
		counter(descReloads, l.TLS.ReloadFailures, name, "failed")
		gauge(descNotAfter, float64(l.TLS.NotAfter.Unix()), name)
	}
	held, limit := p.Unfinished()
	gauge(descUnfinished, float64(held))
	gauge(descUnfinishedLimit, float64(limit))
	if lost, ok := p.LogLost(); ok {
		counter(descLogLost, lost)
	}
}

// descH2 are the counters of HTTP/2, by Envoy's names below http2.
var descH2 = func() map[string]*prometheus.Desc {
	help := map[string]string{
		"rx_reset":           "RST_STREAM received from clients.",
		"tx_reset":           "RST_STREAM sent to clients, by the app and by the pipe.",
		"goaway_sent":        "GOAWAY sent by the pipe.",
		"rx_messaging_error": "Connections ended because the client violated HTTP/2.",
	}
	for flood := range http2.Floods {
		help[flood.Counter()] = "Connections ended: " + flood.Error() + "."
	}
	out := make(map[string]*prometheus.Desc)
	for name := range counters.HTTP2ByName(counters.HTTP2Stats{}) {
		out[name] = prometheus.NewDesc("envoy_http2_"+name, help[name], nil, nil)
	}
	return out
}()
