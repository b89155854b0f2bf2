package observe

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/losses"
)

// Limits for the creation of Events.
const (
	maxEvents     = 256 // that wait; further ones are counted and dropped
	eventTimeout  = 10 * time.Second
	eventAttempts = 3
	eventPause    = time.Second
	maxMessage    = 1024 // bytes, the API server's limit
)

// The reasons of Events, as kubectl get events shows them.
const (
	ReasonLost    = "RequestsLost"       // requests were lost
	ReasonKilled  = "TerminationKilled"  // SIGKILL ended a container at the deadline
	ReasonClean   = "TerminationClean"   // no request was lost
	ReasonUnclear = "TerminationUnclear" // none was lost for certain, but may be
	ReasonUnknown = "TerminationUnknown" // not all was observed
)

// Events writes terminations as Kubernetes Events, one for a pod. It needs create and patch on events.
type Events struct {
	client rest.Interface
	log    *slog.Logger
	queue  chan *corev1.Event
	made   *prometheus.CounterVec
}

// NewEvents returns a writer that is idle until Run. Its metric is registered in r.
func NewEvents(client rest.Interface, r prometheus.Registerer, log *slog.Logger) *Events {
	e := &Events{
		client: client, log: log, queue: make(chan *corev1.Event, maxEvents),
		made: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lastcall_observer_events_total", Help: "Kubernetes Events of terminations, by result (created, refused, dropped).",
		}, []string{"result"}),
	}
	r.MustRegister(e.made)
	return e
}

// Add writes a termination soon. One that lastcall has reported has the controller's Event already, unless it lost more
// than that states. A container's end without its pod has the kubelet's.
func (e *Events) Add(t Termination) {
	isKnown := t.event != "" && t.LostLeast <= t.Agent.Cut && len(t.Killed) == 0
	if isKnown || t.Restart && t.LostLeast == 0 {
		return
	}
	select {
	case e.queue <- eventOf(t):
	default:
		e.made.WithLabelValues("dropped").Inc()
	}
}

// Run writes until ctx ends.
func (e *Events) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-e.queue:
			e.create(ctx, event)
		}
	}
}

func (e *Events) create(ctx context.Context, event *corev1.Event) {
	var err error
	for range eventAttempts {
		attempt, cancel := context.WithTimeout(ctx, eventTimeout)
		err = e.client.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(attempt).Error()
		if apierrors.IsAlreadyExists(err) { // the controller's
			patch, _ := json.Marshal(map[string]string{"type": event.Type, "reason": event.Reason, "message": event.Message})
			err = e.client.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).Body(patch).Do(attempt).Error()
		}
		cancel()
		switch {
		case err == nil:
			e.made.WithLabelValues("created").Inc()
			return
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			e.made.WithLabelValues("refused").Inc()
			if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				e.log.Warn("API server refused an event", "namespace", event.Namespace, "object", event.InvolvedObject.Name, "error", err)
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(eventPause):
		}
	}
	e.made.WithLabelValues("dropped").Inc()
	e.log.Warn("cannot create an event", "namespace", event.Namespace, "object", event.InvolvedObject.Name, "error", err)
}

func eventOf(t Termination) *corev1.Event {
	kind, reason := corev1.EventTypeWarning, ReasonLost
	switch t.Verdict {
	case losses.Clean:
		kind, reason = corev1.EventTypeNormal, ReasonClean
	case losses.Killed:
		reason = ReasonKilled
	case losses.Unclear:
		kind, reason = corev1.EventTypeNormal, ReasonUnclear
	case losses.Unknown:
		kind, reason = corev1.EventTypeNormal, ReasonUnknown
	}
	object := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: t.Namespace, Name: t.Pod, UID: t.UID}
	message := t.Summary()
	if t.isGone && t.owner != nil { // kubectl describe no longer finds the pod
		object = corev1.ObjectReference{APIVersion: t.owner.APIVersion, Kind: t.owner.Kind, Namespace: t.Namespace, Name: t.owner.Name, UID: t.owner.UID}
		message = "pod " + t.Pod + ": " + message
	}
	if t.event == "" {
		what := "/observed"
		if t.Restart {
			what += "/" + t.Container + t.Began.String()
		}
		t.event = carrier.EventName(t.UID, t.Pod, what, 0)
	}
	now := metav1.NewTime(t.Began)
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: t.Namespace, Name: t.event},
		InvolvedObject: object,
		Type:           kind, Reason: reason, Message: strings.ToValidUTF8(message[:min(len(message), maxMessage)], ""), Action: "Terminating", Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: "lastcall-observer", Host: t.Node},
		ReportingController: "lastcall.dev/observer", ReportingInstance: t.Node,
	}
}
