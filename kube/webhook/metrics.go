package webhook

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics of the server. Names of pods or namespaces are no labels: there would be too many.
type metrics struct {
	registry *prometheus.Registry
	duration *prometheus.HistogramVec
	findings *prometheus.CounterVec
	faults   prometheus.Counter
	excess   *prometheus.CounterVec
	expiry   prometheus.Gauge
	rotation *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lastcall_webhook_duration_seconds",
			Help:    "How long admission reviews took, and how many there were, by endpoint (inject, lint) and outcome.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .1, 1, 10},
		}, []string{"endpoint", "outcome"}),
		findings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lastcall_webhook_findings_total", Help: "What lint has found, by rule.",
		}, []string{"rule"}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lastcall_webhook_faults_total", Help: "Panics that were caught; each is a fault of lastcall.",
		}),
		excess: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lastcall_webhook_excess_total",
			Help: "Objects admitted as they are because they, or all reviews at once, are beyond the webhook's bounds, by endpoint.",
		}, []string{"endpoint"}),
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lastcall_webhook_certificate_expiry_timestamp_seconds", Help: "When the serving certificate ends, Unix time.",
		}),
		rotation: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lastcall_webhook_certificate_checks_total", Help: "Looks at the certificate, by result (ok, error).",
		}, []string{"result"}),
	}
	m.registry.MustRegister(m.duration, m.findings, m.faults, m.excess, m.expiry, m.rotation)
	return m
}

func (m *metrics) count(endpoint, outcome string, d time.Duration) {
	m.duration.WithLabelValues(endpoint, outcome).Observe(d.Seconds())
}

// Metrics is the registry of the handler's metrics, to which other parts of the process add theirs.
func (h *Handler) Metrics() prometheus.Registerer { return h.metrics.registry }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
