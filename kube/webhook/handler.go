package webhook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// The paths that are registered.
const (
	PathInjectNamespace = "/inject/namespace" // the namespace has the label
	PathInjectPod       = "/inject/pod"       // the pod has the label
	PathLint            = "/lint"
)

// Handler answers reviews.
type Handler struct {
	Inject inject.Options // the options of all pods; each gets its own Token and Namespace

	// Namespace returns a namespace; without the function, or with an error, it has no labels.
	Namespace func(ctx context.Context, name string) (inject.Namespace, error)

	// Learned returns the findings of earlier terminations of a pod's workload; without the function, none.
	Learned func(namespace string, pod *metav1.ObjectMeta) inject.Learned

	Deny    bool // /lint denies objects whose findings include an error
	Log     *slog.Logger
	metrics *metrics
	limits  limits
	noise   logs.Throttle // of messages that clients cause
	mux     http.ServeMux
}

// NewHandler completes a handler.
func NewHandler(h *Handler) *Handler {
	h.metrics = newMetrics()
	h.limits = newLimits()
	for path, byDefault := range map[string]bool{PathInjectNamespace: true, PathInjectPod: false} {
		answer := func(ctx context.Context, r *review) *admission.AdmissionResponse { return h.inject(ctx, r, byDefault) }
		h.mux.Handle(path, h.reviewed("inject", "not injected", maxObject+maxAround, answer))
	}
	h.mux.Handle(PathLint, h.reviewed("lint", "not examined", 2*maxObject+maxAround, h.lint))
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// tooMany is the reason for an answer without an examination.
const tooMany = "too many reviews at once"

type reviewer func(context.Context, *review) *admission.AdmissionResponse

// reviewed reads the review within the limits, counts it, and limits the effect of a panic to one object that is
// admitted unchanged. undone is the answer to a review beyond the limits.
func (h *Handler) reviewed(endpoint, undone string, maxBody int64, f reviewer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), timeFor(r))
		defer cancel()
		control := http.NewResponseController(w) // a test's recorder has no deadline
		ends, _ := ctx.Deadline()
		_ = control.SetReadDeadline(ends)
		held := h.limits.held.Take(r.RemoteAddr, requestSize, func() {
			cancel()
			_ = control.SetReadDeadline(time.Unix(1, 0)) // in the past
		})
		defer held.Release()
		review, err := h.limits.readReview(ctx, w, r, maxBody, held)
		var response *admission.AdmissionResponse
		no, isRefused := errors.AsType[refusal](err)
		switch {
		case isRefused && no.code != 0:
			h.metrics.count(endpoint, "refused", 0)
			h.warn("request refused", "endpoint", endpoint, "from", r.RemoteAddr, "code", no.code, "reason", no.text)
			http.Error(w, no.text, no.code)
			return
		case isRefused:
			response = h.leave(endpoint, undone, review, no.text)
		default:
			response = h.guarded(ctx, endpoint, review, f)
			review.Request.Object = nil
			if response == nil {
				response = h.leave(endpoint, undone, review, tooMany)
			}
			if n := len(response.Patch) * 3; !held.Grow(n) { // the patch, its base64, and the answer
				response = h.leave(endpoint, undone, review, tooMany)
			}
		}
		text, err := encodeReview(review, response)
		if err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, err = w.Write(text)
		}
		if err != nil {
			h.warn("cannot send the answer", "endpoint", endpoint, "uid", review.Request.UID, "error", err)
		}
		h.metrics.count(endpoint, outcome(response), time.Since(began))
	})
}

// leave admits an object beyond the limits unchanged.
func (h *Handler) leave(endpoint, undone string, r *review, reason string) *admission.AdmissionResponse {
	h.metrics.excess.WithLabelValues(endpoint).Inc()
	h.warn(undone, "endpoint", endpoint, "namespace", r.Request.Namespace, "uid", r.Request.UID, "reason", reason)
	return admit("lastcall: " + undone + ": " + reason)
}

// warn logs messages that clients can cause at will, each once a second.
func (h *Handler) warn(msg string, attrs ...any) { h.noise.Warn(h.Log, time.Second, msg, attrs...) }

func outcome(r *admission.AdmissionResponse) string {
	switch {
	case !r.Allowed:
		return "denied"
	case r.Patch != nil:
		return "patched"
	case len(r.Warnings) > 0:
		return "warned"
	}
	return "unchanged"
}

func (h *Handler) guarded(ctx context.Context, endpoint string, r *review,
	f reviewer) (response *admission.AdmissionResponse) {
	defer func() {
		if fault := recover(); fault != nil {
			h.metrics.faults.Inc()
			h.noise.Log(h.Log, slog.LevelError, time.Second, "internal error; admitting the object unchanged",
				"endpoint", endpoint, "uid", r.Request.UID, "fault", fault, "stack", string(debug.Stack()))
			response = admit("lastcall: internal error (see the log of its webhook); this object is admitted unchanged")
		}
	}()
	return f(ctx, r)
}

func admit(warnings ...string) *admission.AdmissionResponse {
	return &admission.AdmissionResponse{Allowed: true, Warnings: warnings}
}

// inject returns nil if the time was too short.
func (h *Handler) inject(ctx context.Context, r *review, byDefault bool) *admission.AdmissionResponse {
	if r.Request.Operation != admission.Create || r.Request.SubResource != "" {
		return admit()
	}
	namespace := h.namespace(ctx, r.Request.Namespace)
	leave, ok := h.limits.slot(ctx, len(r.Request.Object), r.values)
	if !ok {
		return nil
	}
	defer leave()
	refuse := func(err error) *admission.AdmissionResponse { return admit("lastcall: not injected: " + err.Error()) }
	all, err := manifest.ReadWorkloads(r.Request.Object)
	switch {
	case err != nil:
		return refuse(err)
	case len(all) != 1 || all[0].Kind != "Pod":
		return refuse(errors.New("the object is not a Pod"))
	}
	w := all[0]
	o := h.Inject
	o.ByDefault = byDefault
	o.Token = rand.Text() // 26 letters and digits, 130 bits
	o.Namespace = namespace
	if h.Learned != nil {
		o.Learned = h.Learned(r.Request.Namespace, &w.Pod.ObjectMeta)
	}
	pod, result := inject.Pod(w.Pod, o)
	var warnings []string
	switch result.Outcome {
	case inject.NotRequested:
		return admit()
	case inject.LeftAlone:
		h.noise.Log(h.Log, slog.LevelInfo, time.Second, "left alone",
			"namespace", r.Request.Namespace, "pod", w.Name, "reason", result.Reason)
		warnings = append(warnings, "lastcall: not injected: "+result.Reason)
	}
	operations, err := inject.Diff(w.Pod, pod)
	if err != nil {
		return refuse(err)
	}
	for _, note := range result.Notes {
		warnings = append(warnings, "lastcall: "+note)
	}
	response := admit(warnings...)
	if len(operations) == 0 {
		return response
	}
	if response.Patch, err = json.Marshal(operations); err != nil {
		return refuse(err)
	}
	if len(response.Patch) > maxPatch {
		return h.leave("inject", "not injected", r, fmt.Sprintf("the patch has more than %d bytes", maxPatch))
	}
	response.PatchType = new(admission.PatchTypeJSONPatch)
	response.AuditAnnotations = map[string]string{"outcome": string(result.Outcome)}
	return response
}

func (h *Handler) namespace(ctx context.Context, name string) inject.Namespace {
	if h.Namespace == nil || name == "" {
		return inject.Namespace{Name: name}
	}
	namespace, err := h.Namespace(ctx, name)
	if err != nil {
		h.warn("cannot read a namespace's labels", "namespace", brief(name), "error", err)
	}
	namespace.Name = name
	return namespace
}

// lint examines workloads when users see the warnings: at kubectl apply.
func (h *Handler) lint(ctx context.Context, r *review) *admission.AdmissionResponse {
	if r.Request.Operation != admission.Create && r.Request.Operation != admission.Update || r.Request.SubResource != "" {
		return admit()
	}
	leave, ok := h.limits.slot(ctx, len(r.Request.Object), r.values)
	if !ok {
		return nil
	}
	defer leave()
	all, err := manifest.ReadWorkloads(r.Request.Object)
	if err != nil {
		return admit() // the API server reports the error
	}
	var findings []lint.Finding
	for _, w := range all {
		findings = append(findings, lint.Pod(w.Pod, w.IsJob(), h.Inject.MeshConfig)...)
	}
	response := admit()
	for _, f := range findings {
		h.metrics.findings.WithLabelValues(f.ID).Inc()
		response.Warnings = append(response.Warnings, "lastcall: "+f.String())
	}
	isError := func(f lint.Finding) bool { return f.Severity == lint.Error }
	if first := slices.IndexFunc(findings, isError); h.Deny && first >= 0 {
		response.Allowed = false
		response.Result = &metav1.Status{Status: metav1.StatusFailure,
			Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: fmt.Sprintf("lastcall: the timers of this %s contradict each other: %s", all[0].Kind, findings[first])}
	}
	return response
}

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
	registry := prometheus.NewRegistry()
	add := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return add.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		registry: registry,
		duration: add.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lastcall_webhook_duration_seconds",
			Help:    "How long admission reviews took, and how many there were, by endpoint (inject, lint) and outcome.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .1, 1, 10},
		}, []string{"endpoint", "outcome"}),
		findings: counter("lastcall_webhook_findings_total", "What lint has found, by rule.", "rule"),
		faults: counter("lastcall_webhook_faults_total",
			"Panics that were caught; each is a fault of lastcall.").WithLabelValues(),
		excess: counter("lastcall_webhook_excess_total",
			"Objects admitted as they are because they, or all reviews at once, are beyond the webhook's bounds, by endpoint.",
			"endpoint"),
		expiry: add.NewGauge(prometheus.GaugeOpts{
			Name: "lastcall_webhook_certificate_expiry_timestamp_seconds", Help: "When the serving certificate ends, Unix time.",
		}),
		rotation: counter("lastcall_webhook_certificate_checks_total",
			"Looks at the certificate, by result (ok, error).", "result"),
	}
}

func (m *metrics) count(endpoint, outcome string, d time.Duration) {
	m.duration.WithLabelValues(endpoint, outcome).Observe(d.Seconds())
}

// Metrics is the registry of the handler's metrics, to which other parts of the process add theirs.
func (h *Handler) Metrics() prometheus.Registerer { return h.metrics.registry }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
