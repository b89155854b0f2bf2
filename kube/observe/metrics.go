package observe

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/advice"
)

// Reasons why something was not observed, the label reason of lastcall_observer_unknown_total.
const (
	UnknownNamespace = "namespace" // the pod's network namespace was not found or could not be entered
	UnknownLate      = "late"      // the termination had begun, or a container ended, when the observer first saw it
	UnknownOverrun   = "overrun"   // the kernel or the observer dropped reports of destroyed sockets
	UnknownTooMany   = "too-many"  // too many terminations at the same time
	UnknownEnd       = "end"       // the observer ended before the pod
	UnknownDeadline  = "deadline"  // the API server did not announce the termination
	UnknownListener  = "listener"  // of a young pod: its listeners had closed before the first look at them

	UnknownHostNetwork = "host-network" // the pod uses the node's network namespace, which has the node's sockets, too
)

// maxWorkloads bounds the combinations of namespace, workload and proxy. Further ones are counted as Other.
const maxWorkloads = 300

// Other is the label value of namespace and workload beyond the bound.
const Other = "other"

// Key has the labels by which terminations are counted.
type Key struct {
	Namespace string // of the pod
	Workload  string // kind/name in lower case, such as deployment/web; see Pod
	Proxy     string // the carrier of the pod's traffic: see pod.CarrierOf
}

// Metrics counts terminations. Names and labels are stable: dashboards and alerts use them.
type Metrics struct {
	terminations, lost, perhaps, missed, unknown *prometheus.CounterVec
	duration, idle, lateness, tail               *prometheus.HistogramVec
	pods                                         *prometheus.GaugeVec
	deadlines                                    *prometheus.CounterVec

	mu   sync.Mutex // guards keys
	keys map[Key]bool
}

// NewMetrics registers the metrics in r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	key := []string{"namespace", "workload", "proxy"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, key)
	}
	seconds := []float64{.1, .5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 120, 300}
	m := &Metrics{
		terminations: counter("lastcall_terminations_total",
			"Terminations of pods, by verdict (clean, lost, killed, unclear, unknown).", append(key, "verdict")...),
		lost: counter("lastcall_termination_requests_lost_total",
			"Requests that terminations of pods lost at least, by reason (reset, unanswered, refused, cut; restart: by the end of a container without its pod).",
			append(key, "reason")...),
		perhaps: counter("lastcall_termination_requests_perhaps_lost_total",
			"Requests that terminations of pods may have lost in addition; those that were not observed completely are left out.",
			key...),
		missed: counter("lastcall_termination_deadline_missed_total",
			"Terminations in which SIGKILL ended a container at the end of the grace period.", key...),
		unknown: counter("lastcall_observer_unknown_total",
			"Terminations that were not observed or only in part, by reason (namespace, late, overrun, too-many, end, deadline, listener, host-network).",
			"reason"),
		duration: histogram("lastcall_termination_duration_seconds",
			"Time from the beginning of a termination to the exit of the app.", seconds...),
		idle: histogram("lastcall_termination_idle_seconds",
			"Time before the app's exit in which no request was in flight.", seconds...),
		lateness: histogram("lastcall_termination_lateness_seconds",
			"Time from the beginning of a termination to the last new connection; terminations without one are left out.",
			.01, .025, .05, .1, .25, .5, 1, 2, 3, 5, 10, 15, 30, 60),
		tail: histogram("lastcall_termination_tail_seconds",
			"Time from the last new connection, or the beginning of a termination without one, until no request was in flight.",
			seconds...),
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lastcall_observer_pods", Help: "Pods of the node, by state (watched, host-network, waiting).",
		}, []string{"state"}),
		deadlines: counter("lastcall_observer_deadlines_total",
			"Deadlines before the end of the grace period, announced to lastcall's agents, by source and result (accepted, refused, failed).",
			"from", "result"),
		keys: map[Key]bool{},
	}
	r.MustRegister(m.terminations, m.lost, m.perhaps, m.missed, m.unknown,
		m.duration, m.idle, m.lateness, m.tail, m.pods, m.deadlines)
	for _, reason := range []string{
		UnknownNamespace, UnknownLate, UnknownOverrun, UnknownTooMany,
		UnknownEnd, UnknownDeadline, UnknownListener, UnknownHostNetwork,
	} {
		m.unknown.WithLabelValues(reason)
	}
	return m
}

// Expect creates the counters and histograms of a workload with 0: Prometheus sees no increase in the first value of a
// series.
func (m *Metrics) Expect(k Key) {
	k = m.bounded(k)
	for _, verdict := range advice.Verdicts {
		m.terminations.WithLabelValues(k.Namespace, k.Workload, k.Proxy, verdict)
	}
	for reason := range (observe.Lost{}).Reasons() {
		m.lost.WithLabelValues(k.Namespace, k.Workload, k.Proxy, string(reason))
	}
	m.lost.WithLabelValues(k.Namespace, k.Workload, k.Proxy, advice.ReasonRestart)
	m.perhaps.WithLabelValues(k.Namespace, k.Workload, k.Proxy)
	m.missed.WithLabelValues(k.Namespace, k.Workload, k.Proxy)
	for _, h := range []*prometheus.HistogramVec{m.duration, m.idle, m.lateness, m.tail} {
		h.WithLabelValues(k.Namespace, k.Workload, k.Proxy)
	}
}

// Count counts a termination.
func (m *Metrics) Count(t *advice.Termination) {
	k := m.bounded(Key{t.Namespace, t.Workload, t.Proxy})
	m.perhaps.WithLabelValues(k.Namespace, k.Workload, k.Proxy).Add(float64(max(0, t.LostMost-t.LostLeast)))
	if t.Restart {
		m.lost.WithLabelValues(k.Namespace, k.Workload, k.Proxy, advice.ReasonRestart).Add(float64(t.LostLeast))
		return
	}
	m.terminations.WithLabelValues(k.Namespace, k.Workload, k.Proxy, t.Verdict).Inc()
	for reason, n := range t.Traffic.Lost.Reasons() {
		m.lost.WithLabelValues(k.Namespace, k.Workload, k.Proxy, string(reason)).Add(float64(n))
	}
	missed := m.missed.WithLabelValues(k.Namespace, k.Workload, k.Proxy)
	if len(t.Killed) > 0 {
		missed.Inc()
	}
	if t.Seconds > 0 {
		m.duration.WithLabelValues(k.Namespace, k.Workload, k.Proxy).Observe(t.Seconds)
		m.idle.WithLabelValues(k.Namespace, k.Workload, k.Proxy).Observe(time.Duration(t.Traffic.Idle).Seconds())
		m.tail.WithLabelValues(k.Namespace, k.Workload, k.Proxy).Observe(t.Tail().Seconds())
	}
	if t.Lateness > 0 {
		m.lateness.WithLabelValues(k.Namespace, k.Workload, k.Proxy).Observe(t.Lateness)
	}
}

// CountUnknown counts something that was not observed.
func (m *Metrics) CountUnknown(reason string) { m.unknown.WithLabelValues(reason).Inc() }

func (m *Metrics) bounded(k Key) Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.keys[k] {
		if len(m.keys) >= maxWorkloads {
			return Key{Namespace: Other, Workload: Other, Proxy: Other}
		}
		m.keys[k] = true
	}
	return k
}
