package advise

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Options are what the advice follows from.
type Options struct {
	Durations   Durations     // how long requests take
	Propagation time.Duration // how long clients still connect after the deletion

	// Evidence is what Durations come from; nil if they are of single requests, or assumed.
	Evidence *Evidence

	// Lose is the share, 0 to 1, of the longest requests that the timers need not cover.
	Lose float64

	// Pod is the manifest's; nil for a pod with one container named app.
	Pod *corev1.Pod

	termination.Options
}

// Kind is what the advice uses.
type Kind string

const (
	Sleep    Kind = "preStop sleep"
	Lastcall Kind = "lastcall"
)

// Advice is a set of timers. All are whole seconds.
type Advice struct {
	Kind  Kind
	Grace time.Duration // terminationGracePeriodSeconds

	// Wait is the preStop sleep, or lastcall's minimum drain.
	Wait time.Duration

	// QuietTime is lastcall's; 0 with a sleep.
	QuietTime time.Duration

	Pod  *corev1.Pod // with these timers
	Plan *termination.Termination
}

const (
	// answered is from the end of the last request until SIGKILL: the app gets its stop signal before.
	answered = time.Second

	quietTime = 2 * time.Second // drain.DefaultQuietTime
)

// Longest is how long requests take, without the share that may be lost.
func (o Options) Longest() time.Duration { return o.Durations.Quantile(1 - o.Lose) }

// For computes the timers of one kind. A request that arrives when the last client learns of the end, and takes as long as
// the longest, must be answered. The error is that the pod ends otherwise.
func For(kind Kind, o Options) (*Advice, error) {
	end := o.Propagation + o.Longest()
	a := &Advice{Kind: kind, Wait: seconds(o.Propagation)}
	switch {
	case kind == Lastcall:
		a.QuietTime = quietTime
	case o.exits():
		a.Wait = seconds(end)
	}
	least := max(seconds(end), a.Wait) + answered
	// What ends within this time is answered; only the part of the grace period that lastcall keeps grows with it.
	var c course.Course
	for a.Grace = least; a.Grace <= 2*least+answered; a.Grace += time.Second {
		a.Pod = o.pod(kind, a.Wait, a.Grace, a.QuietTime)
		a.Plan = termination.Of(a.Pod, o.Options)
		if c = a.Plan.Course(course.Traffic{Busy: end, Last: o.Propagation}); c.Accepts >= o.Propagation && c.Cut >= end {
			return a, nil
		}
	}
	return nil, fmt.Errorf("with a wait of %v no grace period suffices: requests in flight are ended after %v: %s", a.Wait, c.Cut.Round(time.Millisecond), c.CutBy)
}

// exits reports whether the app ends requests in flight at its stop signal.
func (o Options) exits() bool { return o.App == course.Exits || o.App == "" }

// seconds rounds up.
func seconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// pod is the pod with these timers.
func (o Options) pod(kind Kind, wait, grace, quiet time.Duration) *corev1.Pod {
	pod := AnyPod()
	if o.Pod != nil {
		pod = o.Pod.DeepCopy()
	}
	seconds := int64(grace / time.Second)
	pod.Spec.TerminationGracePeriodSeconds = &seconds
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if kind == Lastcall {
		pod.Labels[inject.AnnotationInject] = "true"
		pod.Annotations["lastcall.dev/pre-stop"] = "replace"
		pod.Annotations["lastcall.dev/quiet-time"] = quiet.String()
		pod.Annotations["proxy.istio.io/config"] = config(wait)
		return pod
	}
	delete(pod.Labels, inject.AnnotationInject)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Lifecycle = &corev1.Lifecycle{}
		if wait > 0 {
			c.Lifecycle.PreStop = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(wait / time.Second)}}
		}
	}
	return pod
}

// AnyPod is a pod with one container, named app.
func AnyPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}}}
}

// config is the annotation that sets the minimum drain.
func config(wait time.Duration) string {
	return fmt.Sprintf("proxyMetadata: {MINIMUM_DRAIN_DURATION: %v}", wait)
}
