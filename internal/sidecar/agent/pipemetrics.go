package agent

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

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
