package advise

import (
	"fmt"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/model"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Options are what the advice follows from.
type Options struct {
	// Load is that of one pod.
	Load model.Load

	// Evidence is what Load.Durations come from; nil if they are of single requests, or assumed.
	Evidence *Evidence

	// Lose is the largest share, 0 to 1, of the requests meeting a pod's end that may be lost, refused ones included.
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

	// Share is lost of the requests meeting a pod's end: with these timers, with a second less to wait, and with a second
	// less of grace.
	Share, ShareWait, ShareGrace float64

	Plan *termination.Termination
}

const (
	sample     = 60  // pods of one estimate
	sampleIdle = 600 // of idle pods

	fewRequests = 0.2 // per second: they leave a pod idle most of the time

	longWait  = 30 * time.Minute // the longest that is searched
	quietTime = 2 * time.Second  // drain.DefaultQuietTime
	seed      = 1
)

// For searches the timers of one kind. The error is that no timers up to 30 min suffice.
func For(kind Kind, o Options) (*Advice, error) {
	a := &Advice{Kind: kind}
	if kind == Lastcall {
		a.QuietTime = quietTime
	}
	load := o.Load
	if o.Lose == 0 { // every request could be as long as the longest
		load.Durations = model.Observed([]time.Duration{load.Durations.Longest()})
	}
	share := func(wait, grace, quiet time.Duration) float64 {
		s, _ := model.Share(o.plan(kind, wait, grace, quiet), load, sample, seed)
		return s
	}
	// The pod is idle, and the quiet time is left out: requests in flight, and new ones, would keep it accepting.
	idle, pods := load, sample
	if kind == Lastcall {
		pods, idle.Rate, idle.Durations = sampleIdle, min(idle.Rate, fewRequests), model.Observed([]time.Duration{time.Millisecond})
	}
	shareIdle := func(wait, grace time.Duration) float64 {
		s, _ := model.Share(o.plan(kind, wait, grace, 0), idle, pods, seed)
		return s
	}
	const limit = int(longWait / time.Second)
	most := 2*longWait + o.Load.Durations.Longest()
	wait := sort.Search(limit, func(s int) bool { return shareIdle(time.Duration(s)*time.Second, most) <= o.Lose })
	if wait == limit {
		return nil, fmt.Errorf("with a %s of %v a share of more than %g is still lost: the app does not finish its requests at its stop signal, or --propagation is too long", kind, longWait, o.Lose)
	}
	a.Wait = time.Duration(wait) * time.Second
	grace := 1 + sort.Search(int(most/time.Second), func(s int) bool {
		return share(a.Wait, time.Duration(s+1)*time.Second, a.QuietTime) <= o.Lose
	})
	a.Grace = time.Duration(grace) * time.Second
	a.Plan = o.plan(kind, a.Wait, a.Grace, a.QuietTime)
	a.Share = share(a.Wait, a.Grace, a.QuietTime)
	a.ShareWait, a.ShareGrace = a.Share, share(a.Wait, a.Grace-time.Second, a.QuietTime)
	if a.Wait > 0 {
		a.ShareWait = shareIdle(a.Wait-time.Second, most)
	}
	return a, nil
}

// plan is the termination of the pod with these timers.
func (o Options) plan(kind Kind, wait, grace, quiet time.Duration) *termination.Termination {
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
		return termination.Of(pod, o.Options)
	}
	delete(pod.Labels, inject.AnnotationInject)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Lifecycle = &corev1.Lifecycle{}
		if wait > 0 {
			c.Lifecycle.PreStop = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(wait / time.Second)}}
		}
	}
	return termination.Of(pod, o.Options)
}

// AnyPod is a pod with one container, named app.
func AnyPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}}}
}

// config is the annotation that sets the minimum drain.
func config(wait time.Duration) string {
	return fmt.Sprintf("proxyMetadata: {MINIMUM_DRAIN_DURATION: %v}", wait)
}
