package observe

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/eventwriter"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// maxEvents bounds the Events that wait; further ones are counted and dropped.
const maxEvents = 256

// reasons of Events by verdict, as kubectl get events shows them.
var reasons = map[string]string{
	advice.Lost: "RequestsLost", advice.Killed: "TerminationKilled", advice.Clean: "TerminationClean",
	advice.Unclear: ReasonUnclear, advice.Unknown: "TerminationUnknown",
}

// ReasonUnclear is the reason if no request was lost for certain, but some may be.
const ReasonUnclear = "TerminationUnclear"

// Events writes terminations as Kubernetes Events, one for a pod. It needs create and patch on events.
type Events struct{ *eventwriter.Writer }

// NewEvents returns a writer that is idle until Run. Its metric is registered in r.
func NewEvents(client rest.Interface, r prometheus.Registerer, log *slog.Logger) Events {
	create := func(ctx context.Context, e *corev1.Event) error {
		err := client.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// The Event is the controller's.
		patch, _ := json.Marshal(map[string]string{"type": e.Type, "reason": e.Reason, "message": e.Message})
		events := client.Patch(types.MergePatchType).Namespace(e.Namespace).Resource("events")
		return events.Name(e.Name).Body(patch).Do(ctx).Error()
	}
	return Events{eventwriter.New(create, maxEvents, "lastcall_observer_events_total", r, log)}
}

// Report writes a termination soon, if it needs an Event.
func (e Events) Report(t Termination) {
	if t.needsEvent() {
		e.Add(eventOf(t))
	}
}

// needsEvent: one that lastcall has reported has the controller's Event already, unless it lost more than that states.
// A container's end without its pod has the kubelet's.
func (t *Termination) needsEvent() bool {
	isKnown := t.event != "" && t.LostLeast <= t.Agent.Cut && len(t.Killed) == 0
	return !isKnown && (!t.Restart || t.LostLeast > 0)
}

func eventOf(t Termination) *corev1.Event {
	kind := corev1.EventTypeNormal
	if t.Verdict == advice.Lost || t.Verdict == advice.Killed {
		kind = corev1.EventTypeWarning
	}
	object := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: t.Namespace, Name: t.Pod, UID: t.UID}
	message := t.Summary()
	if t.isGone && t.owner != nil { // kubectl describe no longer finds the pod
		object = corev1.ObjectReference{
			APIVersion: t.owner.APIVersion, Kind: t.owner.Kind, Namespace: t.Namespace, Name: t.owner.Name, UID: t.owner.UID,
		}
		message = "pod " + t.Pod + ": " + message
	}
	if t.event == "" {
		what := "/observed"
		if t.Restart {
			what += "/" + t.Container + t.Began.String()
		}
		t.event = pod.EventName(t.UID, t.Pod, what, 0)
	}
	now := metav1.NewTime(t.Began)
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: t.Namespace, Name: t.event},
		InvolvedObject: object,
		Type:           kind, Reason: reasons[t.Verdict], Action: "Terminating", Count: 1,
		Message:        strings.ToValidUTF8(message[:min(len(message), eventwriter.MaxMessage)], ""),
		FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: "lastcall-observer", Host: t.Node},
		ReportingController: "lastcall.dev/observer", ReportingInstance: t.Node,
	}
}
