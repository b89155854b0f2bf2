package lint

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// soon is the time below which no client has noticed the end of a pod.
const soon = time.Second

// stopsItself: a hook that ends the app delays nothing, whatever it does afterwards. lastcall's waits before it runs
// it.
func (l *linting) stopsItself() {
	if l.job || l.hasLastcall() {
		return
	}
	l.containers(func(c *corev1.Container, where string) {
		hook := pod.ReadHook(&l.pod.Spec, c)
		if !hook.Stops || hook.StopsAt >= soon || !l.isServing(c) {
			return
		}
		after := "it refuses the connections of clients that still have its address"
		if hook.Duration > 0 {
			after += ", and the sleep of " + hook.Duration.String() + " comes too late"
		}
		l.find("LC035", Warning, where+".lifecycle.preStop",
			"ends the app at once (%s): %s; sleep before it, or use lastcall, which drains first", hook.Stopper(), after)
	})
}

// isServing reports whether clients' requests reach a container, or one that passes them to it.
func (l *linting) isServing(c *corev1.Container) bool {
	serves, behind := pod.Serves(&l.pod.Spec, l.targets)
	is := func(other *corev1.Container) bool { return other.Name == c.Name }
	return slices.ContainsFunc(serves, is) || slices.ContainsFunc(behind, is)
}

// dependence: a container that passes its requests to another one fails them once that has ended.
func (l *linting) dependence() {
	if l.job || l.hasLastcall() {
		return
	}
	spec := &l.pod.Spec
	serves, behind := pod.Serves(spec, l.targets)
	for _, c := range slices.Concat(serves, behind) {
		first, isKnown := signalOf(spec, c)
		for _, other := range pod.Needs(spec, c) {
			at, isOthers := signalOf(spec, other)
			if !slices.Contains(behind, other) || !isKnown || !isOthers || at >= first {
				continue
			}
			l.find("LC036", Warning, "spec.containers["+other.Name+"]",
				"gets its stop signal after %v, and %s, which passes requests to it, after %v: in between they fail; "+
					"give it a preStop that lasts as long", at, c.Name, first)
		}
	}
}

// signalOf is when a container's app gets its stop signal, from the kubelet or from its own hook.
func signalOf(spec *corev1.PodSpec, c *corev1.Container) (at time.Duration, isKnown bool) {
	hook := pod.ReadHook(spec, c)
	if hook.Stops {
		return hook.StopsAt, hook.IsKnown
	}
	return hook.Duration, hook.IsKnown
}

// reloads: uWSGI takes SIGTERM for a reload.
func (l *linting) reloads() {
	l.containers(func(c *corev1.Container, where string) {
		signal, _ := pod.StopSignal(c)
		if r, why := pod.Reacts(&l.pod.Spec, c, signal, true); r == course.Reloads {
			l.find("LC037", Warning, where+".command",
				"%s: its requests are cut, it starts again, and SIGKILL ends it; "+
					"add --die-on-term, or lifecycle: {stopSignal: SIGQUIT}", why)
		}
	})
}

// ownTimers: a server that waits for longer than is left of the grace period. One that exits at its signal waits for no
// timer.
func (l *linting) ownTimers() {
	l.containers(func(c *corev1.Container, where string) {
		if pod.IsProxy(&l.pod.Spec, c) && c.Name != "daprd" {
			return
		}
		own := pod.ReadHook(&l.pod.Spec, c)
		signal, _ := pod.StopSignal(c)
		reaction, _ := pod.Reacts(&l.pod.Spec, c, signal, true)
		if reaction == course.Exits && !own.Stops || own.Stop == course.Exits {
			return
		}
		hook := own.Duration
		if l.hasLastcall() {
			hook = 0 // the drain comes first, and the rest is the last call's
		}
		var values manifest.Expansion
		expanded := values.Container(*c)
		for _, t := range pod.TimersOf(&expanded) {
			if left := l.grace - hook; hook < l.grace && t.Wait > left {
				l.find("LC038", Warning, where,
					"waits for up to %v at its end (%s), and %v of the grace period of %v are left after its preStop: "+
						"SIGKILL cuts what it still waits for; raise terminationGracePeriodSeconds above %v, or lower the timer",
					t.Wait, t.Name, left, l.grace, hook+t.Wait)
			}
		}
	})
}
