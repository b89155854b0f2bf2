package gateway

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/httpdrain"
)

// metrics of a gateway. planeMetrics adds those that are read at the scrape.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	endpoints *prometheus.GaugeVec
	reloads   *prometheus.CounterVec
	cut       *prometheus.CounterVec
	phase     *prometheus.GaugeVec

	mu    sync.Mutex     // guards pools
	pools map[string]int // by cluster: a new one may be made before its predecessor is closed
}

var descConnections = prometheus.NewDesc("lastcall_gateway_connections", "Open client connections.", []string{"state"}, nil)

func newMetrics(more ...prometheus.Collector) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		pools:     make(map[string]int),
		registry:  prometheus.NewRegistry(),
		requests:  counter("lastcall_gateway_requests_total", "Requests by route and class of their status (none: no answer).", "route", "class"),
		endpoints: gauge("lastcall_gateway_endpoints", "Endpoints by state: ready, terminating (and serving), not_ready.", "cluster", "state"),
		reloads:   counter("lastcall_gateway_reloads_total", "Changes of routes, endpoints and certificates.", "of", "result"),
		cut:       counter("lastcall_requests_cut_total", "Conversations ended by the last call, by their ending.", "reason"),
		phase:     gauge("lastcall_drain_phase", "1 for the phase the termination is in.", "phase"),
	}
	m.enter(drain.Serving)
	m.registry.MustRegister(m.requests, m.endpoints, m.reloads, m.cut, m.phase)
	m.registry.MustRegister(more...)
	prometheus.WrapRegistererWithPrefix("lastcall_", m.registry).MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) setEndpoints(cluster string, s EndpointStates) {
	m.endpoints.WithLabelValues(cluster, "ready").Set(float64(s.Ready))
	m.endpoints.WithLabelValues(cluster, "terminating").Set(float64(s.Terminating))
	m.endpoints.WithLabelValues(cluster, "not_ready").Set(float64(s.NotReady))
}

// added counts a pool of the cluster. removed deletes the cluster's series with its last pool.
func (m *metrics) added(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pools[cluster]++
}

func (m *metrics) removed(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools[cluster]--; m.pools[cluster] <= 0 {
		delete(m.pools, cluster)
		m.endpoints.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
	}
}

// request counts a request that has ended.
func (m *metrics) request(route string, status int) {
	class := "none"
	if status > 0 {
		class = strconv.Itoa(status/100) + "xx"
	}
	m.requests.WithLabelValues(route, class).Inc()
}

// reload counts a change of routes, endpoints or certificates.
func (m *metrics) reload(of string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.reloads.WithLabelValues(of, result).Inc()
}

func (m *metrics) enter(now drain.Phase) {
	for p := drain.Serving; p <= drain.Done; p++ {
		v := 0.0
		if p == now {
			v = 1
		}
		m.phase.WithLabelValues(p.String()).Set(v)
	}
}

// watch adds the metrics of the plane.
func (m *metrics) watch(p *httpdrain.Plane) { m.registry.MustRegister(planeMetrics{p}) }

type planeMetrics struct{ *httpdrain.Plane }

func (p planeMetrics) Describe(out chan<- *prometheus.Desc) { out <- descConnections }

func (p planeMetrics) Collect(out chan<- prometheus.Metric) {
	a, _ := p.Activity(context.Background())
	out <- prometheus.MustNewConstMetric(descConnections, prometheus.GaugeValue, float64(a.Busy), "busy")
	out <- prometheus.MustNewConstMetric(descConnections, prometheus.GaugeValue, float64(a.Connections-a.Busy), "idle")
}
