package agent

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
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
	outbound     atomic.Pointer[outboundProxy]
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
	for _, reason := range []string{drain.EndingReply, drain.EndingTruncated, drain.EndingFIN, drain.EndingCompleted,
		drain.EndingGoingAway} {
		m.cut.WithLabelValues(reason)
	}
	m.registry.MustRegister(m, m.cut, m.scrapeFailed, m.hookRefused, m.restarts)
	m.registry.MustRegister(more...)
	// The app may be a Go program whose metrics are in the same scrape.
	prometheus.WrapRegistererWithPrefix("lastcall_", m.registry).MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Describe sends nothing: the set of series depends on the phase.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// sender sends the metrics of a scrape.
type sender chan<- prometheus.Metric

// desc describes a metric with labels, which are pairs of a name and a value.
func desc(name, help string, labels []string) (d *prometheus.Desc, values []string) {
	var names []string
	for pair := range slices.Chunk(labels, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	return prometheus.NewDesc(name, help, names, nil), values
}

func (s sender) gauge(name, help string, v float64, labels ...string) {
	d, values := desc(name, help, labels)
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, values...)
}

func (s sender) counter(name, help string, v uint64, labels ...string) {
	d, values := desc(name, help, labels)
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), values...)
}

// Collect reads the current values.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	s, now := sender(out), m.phases.now()
	for p := drain.Serving; p <= drain.Done; p++ {
		v := 0.0
		if p == now.phase {
			v = 1
		}
		s.gauge("lastcall_drain_phase", "1 for the current phase of the termination.", v, "phase", p.String())
	}
	s.gauge("lastcall_drain_duration_seconds", "Duration of the current termination, or of the latest.",
		now.duration().Seconds())
	if left, isTerminating := now.remaining(); isTerminating {
		s.gauge("lastcall_deadline_remaining_seconds", "Time until the platform's SIGKILL, during a termination.",
			left.Seconds())
	}
	if o := m.outbound.Load(); o != nil {
		s.gauge("lastcall_outbound_connections", "Open outbound connections of the app.", float64(o.open.Load()))
		s.counter("lastcall_outbound_connections_total", "Outbound connections of the app.", o.total.Load())
		s.counter("lastcall_outbound_failures_total", "Outbound connections whose destination was unreachable.",
			o.failed.Load())
	}
	plane := m.plane.Load()
	if plane == nil {
		return
	}
	activity, err := (*plane).Activity(context.Background())
	if err == nil && activity.Known {
		const name, help = "lastcall_connections", "Open inbound connections."
		s.gauge(name, help, float64(activity.Busy), "state", "busy")
		s.gauge(name, help, float64(activity.Connections-activity.Busy), "state", "idle")
	}
	if p := m.pipe(); p != nil { // Envoy has metrics of its own
		s.pipe(p, activity)
		for i, l := range p.Listeners() {
			s.listener(l, p.Durations(i))
		}
	}
}

// pipe sends the sums of all listeners, with Envoy's names where it has them, for existing dashboards.
func (s sender) pipe(p *pipe.Pipe, activity drain.Activity) {
	const prefix, inbound = "envoy_http_conn_manager_prefix", "inbound"
	sum := p.Stats()
	s.gauge("envoy_http_downstream_cx_active", "Open inbound connections.", float64(activity.Connections), prefix, inbound)
	s.counter("envoy_http_downstream_cx_total", "Accepted inbound connections.", sum.Connections, prefix, inbound)
	s.gauge("envoy_http_downstream_rq_active", "Busy inbound connections.", float64(activity.Busy), prefix, inbound)
	s.counter("envoy_http_downstream_rq_total", "Inbound requests.", sum.Requests, prefix, inbound)
	for i := 1; i < len(sum.Responses); i++ {
		s.counter("envoy_http_downstream_rq_xx", "Responses by class.", sum.Responses[i],
			"envoy_response_code_class", strconv.Itoa(i), prefix, inbound)
	}
	s.counter("envoy_cluster_upstream_cx_connect_fail", "Failed connections to the app.", sum.ConnectFailed,
		"envoy_cluster_name", inbound)
	for name, value := range counters.HTTP2ByName(sum.H2) {
		s.counter("envoy_http2_"+name, http2Help[name], value)
	}
	s.counter("lastcall_requests_raced_total", "Connections that were closed while a request was arriving.", sum.Raced)
	s.counter("lastcall_responses_truncated_total", "Responses that the app did not complete.", sum.Truncated)
	refused := func(code string, n uint64) {
		s.counter("lastcall_requests_refused_total",
			"Requests refused because they were malformed, too large or too slow, by the response's status; other: HTTP/2 requests, and connections.",
			n, "code", code)
	}
	other := sum.Refused
	for i, code := range counters.RefusedCodes {
		refused(strconv.Itoa(code), sum.RefusedWith[i])
		other -= sum.RefusedWith[i]
	}
	refused("other", other)
	s.counter("lastcall_accept_errors_total", "Failed accepts: no descriptors, no memory.", sum.AcceptErrors)
	held, limit := p.Unfinished()
	s.gauge("lastcall_unfinished_bytes", "Memory that requests which are not complete hold.", float64(held))
	s.gauge("lastcall_unfinished_limit_bytes", "Limit of lastcall_unfinished_bytes.", float64(limit))
	if lost, ok := p.LogLost(); ok {
		s.counter("lastcall_access_log_lost_total", "Access log lines that were not written.", lost)
	}
}

// listener sends the metrics of one listener.
func (s sender) listener(l pipe.Listener, durations []counters.Durations) {
	of := func(v uint64, name, help string, labels ...string) {
		s.counter("lastcall_"+name, help, v, append([]string{"listener", l.Label()}, labels...)...)
	}
	for state, n := range map[string]int{"busy": l.Busy, "idle": max(0, l.Open-l.Busy)} {
		s.gauge("lastcall_listener_connections", "Open inbound connections of a listener.", float64(n),
			"listener", l.Label(), "state", state)
	}
	of(l.Stats.Connections, "listener_connections_total", "Accepted inbound connections of a listener.")
	of(l.Stats.Overflowed, "connections_refused_total", "Connections refused because of a listener's limit.")
	for kind, n := range l.Stats.Evicted {
		of(n, "connections_evicted_total",
			"Connections ended because the memory for unfinished requests, or for connections, was used up, by what they were doing.",
			"kind", counters.Evicted(kind).String())
	}
	of(l.Stats.IdleEnded, "idle_timeouts_total", "Connections ended by the idle timeout.")
	of(l.Stats.ResponseTimeouts, "response_timeouts_total", "Requests ended by the response timeout.")
	for reason, n := range l.Stats.Invalid {
		of(n, "responses_invalid_total", "Responses of the app that were answered with 502, or passed on in part, by the reason.",
			"reason", counters.Invalid(reason).String())
	}
	for kind, n := range l.Stats.Opaque {
		of(n, "opaque_connections_total",
			"Connections forwarded as bytes, which count as busy while they are open, by the reason.",
			"kind", counters.Opaque(kind).String())
	}
	for _, d := range durations {
		class := "none"
		if d.Class > 0 {
			class = strconv.Itoa(d.Class) + "xx"
		}
		buckets := make(map[float64]uint64, len(d.Buckets))
		for b, n := range d.Buckets {
			buckets[counters.Bounds[b]] = n
		}
		of, labels := desc("lastcall_request_duration_seconds",
			"Time from a request's head to the end of its response; class none: without a response.",
			[]string{"listener", l.Label(), "protocol", d.Protocol, "response_class", class})
		s <- prometheus.MustNewConstHistogram(of, d.Count, d.Sum.Seconds(), buckets, labels...)
	}
	if l.TLS == nil {
		return
	}
	for resumed, n := range map[string]uint64{"false": l.TLS.Full, "true": l.TLS.Resumed} {
		of(n, "tls_handshakes_total", "Successful TLS handshakes.", "resumed", resumed)
	}
	for reason, n := range l.TLS.Failures {
		of(n, "tls_handshake_failures_total", "Failed TLS handshakes.", "reason", reason)
	}
	failed := l.TLS.ReloadFailures
	for result, n := range map[string]uint64{"read": l.TLS.Reloads - failed, "failed": failed} {
		of(n, "certificate_reloads_total",
			"Reloads of a certificate's files; after a failed one the previous certificate stays in use.", "result", result)
	}
	s.gauge("lastcall_certificate_expiry_timestamp_seconds", "When the current certificate expires.",
		float64(l.TLS.NotAfter.Unix()), "listener", l.Label())
}

// http2Help describes the counters of HTTP/2, by Envoy's names below http2.
var http2Help = func() map[string]string {
	help := map[string]string{
		"rx_reset":           "RST_STREAM received from clients.",
		"tx_reset":           "RST_STREAM sent to clients, by the app and by the pipe.",
		"goaway_sent":        "GOAWAY sent by the pipe.",
		"rx_messaging_error": "Connections ended because the client violated HTTP/2.",
	}
	for flood := range http2.Floods {
		help[flood.Counter()] = "Connections ended: " + flood.Error() + "."
	}
	return help
}()
