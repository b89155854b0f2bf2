package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/workload"
)

// Limits of Events.
const (
	maxEvents   = 5000 // of the namespace, that are read
	eventsOfPod = 5    // that are kept
)

// observer is the component of lastcall's observer in Events.
const observer = "lastcall-observer"

// explaining are the reasons of Events that explain a pod's end, in addition to all Events of lastcall.
var explaining = []string{"FailedPreStopHook", "FailedKillPod", "ExceededGracePeriod", "Evicted", "Preempted", "OOMKilling"}

// events are the Events about the pods' ends, by pod; those of lastcall's observer have its counts of losses. notes name what is
// missing.
func (r *run) events(ctx context.Context, all []course) (byPod map[string][]string, notes []string) {
	// What was seen is reported even after the end of ctx.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workload.CallTimeout)
	defer cancel()
	byPod = map[string][]string{}
	isObserved := false
	o := metav1.ListOptions{Limit: 500}
	for read := 0; read < maxEvents; {
		list, err := r.clients.Core.Events(r.Workload.Namespace).List(ctx, o)
		if err != nil {
			return byPod, []string{fmt.Sprintf("Events are not readable: %v", err)}
		}
		read += max(1, len(list.Items))
		for i := range list.Items {
			e := &list.Items[i]
			isObserved = isObserved || e.Source.Component == observer
			pod, text := r.explains(all, e)
			if pod != "" && len(byPod[pod]) < eventsOfPod && !slices.Contains(byPod[pod], text) {
				byPod[pod] = append(byPod[pod], text)
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			break
		}
	}
	if !isObserved {
		notes = append(notes, "no Events of lastcall's observer: it is not installed, or does not observe these pods; what other clients lost is unknown")
	}
	return byPod, notes
}

// explains returns the pod whose end an Event is about, and the Event in words.
func (r *run) explains(all []course, e *corev1.Event) (pod, text string) {
	ours := strings.HasPrefix(e.Source.Component, "lastcall") || strings.HasPrefix(e.ReportingController, "lastcall.dev/")
	if !ours && !slices.Contains(explaining, e.Reason) || latest(e).Before(r.began.Truncate(time.Second)) {
		return "", ""
	}
	for i := range all {
		name := all[i].pod.Name
		// The observer's Events are about the pod's owner when the pod has gone, and begin with its name.
		if e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == name || strings.HasPrefix(e.Message, "pod "+name+": ") {
			from := e.Source.Component
			if from == "" {
				from = e.ReportingController
			}
			return name, fmt.Sprintf("%s (%s): %s", e.Reason, from, strings.TrimPrefix(e.Message, "pod "+name+": "))
		}
	}
	return "", ""
}

// latest is the time of an Event, whichever form it has.
func latest(e *corev1.Event) time.Time {
	for _, at := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !at.IsZero() {
			return at
		}
	}
	return e.CreationTimestamp.Time
}
