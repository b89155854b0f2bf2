package events

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/eventwriter"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// component is the reporting component of Events.
const component = "lastcall"

// reporter is the reporting controller of Events.
const reporter = "lastcall.dev/webhook"

// Fresh is the maximum age of a termination that gets an Event. An API server keeps Events for an hour by default: an
// older termination may have had one that is already deleted.
const Fresh = 30 * time.Minute

// eventsOf are the Events for a pod's status.
func eventsOf(p *corev1.Pod, now time.Time) []*corev1.Event {
	var all []*corev1.Event
	for _, c := range pod.Statuses(p) {
		if e := eventOf(p, c.Name, c.RestartCount, c.State.Terminated, now); e != nil {
			all = append(all, e)
		}
		// The end before the last restart, when the restart count was one lower.
		e := eventOf(p, c.Name, c.RestartCount-1, c.LastTerminationState.Terminated, now)
		if e != nil && c.RestartCount > 0 {
			all = append(all, e)
		}
	}
	return all
}

func eventOf(p *corev1.Pod, container string, restarts int32, end *corev1.ContainerStateTerminated,
	now time.Time) *corev1.Event {
	if end == nil {
		return nil
	}
	report, isReport := drain.ParseMessage(end.Message)
	reason := reasons[report.Verdict]
	at := end.FinishedAt.Time
	if at.IsZero() { // from a runtime without a time
		at = report.Began.Add(time.Duration(report.Duration))
	}
	if !isReport || reason == "" || now.Sub(at) > Fresh {
		return nil
	}
	kind := corev1.EventTypeNormal
	if reason == ReasonCut || reason == ReasonCrashed {
		kind = corev1.EventTypeWarning
	}
	isOne := func(c corev1.ContainerStatus) bool { return c.Name == container }
	field := "containers"
	if slices.ContainsFunc(p.Status.InitContainerStatuses, isOne) {
		field = "initContainers"
	}
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.EventName(p.UID, p.Name, container, restarts), Namespace: p.Namespace,
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name,
			UID: p.UID, ResourceVersion: p.ResourceVersion,
			FieldPath: "spec." + field + "{" + container + "}", // as in the kubelet's own events
		},
		Type: kind, Reason: reason, Message: terminal.Shorten(report.Summary(), eventwriter.MaxMessage),
		Action: "Terminating", Count: 1, FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at),
		Source: corev1.EventSource{Component: component}, ReportingController: reporter,
	}
	if workload := p.Annotations[AnnotationWorkload]; workload != "" && report.Finish != nil && report.Finish.App != "" {
		e.Annotations = map[string]string{AnnotationApp: report.Finish.App, AnnotationWorkload: workload}
	}
	return e
}

// Trim is the informer's transform: it removes the parts of a pod that Events do not need. A cluster may have 100,000
// pods.
func Trim(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
		},
		Status: corev1.PodStatus{
			InitContainerStatuses: trimmed(p.Status.InitContainerStatuses),
			ContainerStatuses:     trimmed(p.Status.ContainerStatuses),
		},
	}
	count := len(out.Status.InitContainerStatuses) + len(out.Status.ContainerStatuses)
	if workload := pod.WorkloadOf(&p.ObjectMeta); workload != pod.NoWorkload && count > 0 {
		out.Annotations = map[string]string{AnnotationWorkload: workload}
	}
	return out, nil
}

func trimmed(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, c := range all {
		state, last := ending(c.State.Terminated), ending(c.LastTerminationState.Terminated)
		if state == nil && last == nil {
			continue
		}
		out = append(out, corev1.ContainerStatus{
			Name: c.Name, RestartCount: c.RestartCount,
			State: corev1.ContainerState{Terminated: state}, LastTerminationState: corev1.ContainerState{Terminated: last},
		})
	}
	return out
}

func ending(end *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
	if end == nil || !strings.HasPrefix(end.Message, `{"verdict":`) {
		return nil
	}
	return &corev1.ContainerStateTerminated{Message: end.Message, FinishedAt: end.FinishedAt}
}

// The reasons, as kubectl get events shows them.
const (
	ReasonDrained = "Drained"      // every request was answered
	ReasonCut     = "DrainCut"     // the last call had to end requests
	ReasonFixed   = "DrainFixed"   // ended by terminationDrainDuration, with open requests or without
	ReasonCrashed = "DrainCrashed" // the proxy exited before its termination
	ReasonQuit    = "DrainSkipped" // /quitquitquit: no drain
	ReasonExited  = "AppExited"    // the app ended by itself: no drain
	ReasonRestart = "AppRestarted" // the app failed its probe: its container restarts, and the hook did not wait
)

// reasons are those of reports. Other verdicts are not of the end of a termination.
var reasons = map[drain.Verdict]string{
	drain.Clean: ReasonDrained, drain.Assumed: ReasonDrained, drain.Cut: ReasonCut, drain.Ended: ReasonFixed,
	drain.Crashed: ReasonCrashed, drain.Quit: ReasonQuit, drain.Exited: ReasonExited, drain.Restarted: ReasonRestart,
}
