package lint

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

func (l *linting) preStopSleeps() {
	l.containers(func(c *corev1.Container, path string) {
		hook := l.ownHook(c).Hook
		if hook.Own != nil {
			hook = *hook.Own
		}
		if hook.Stops && hook.StopsAt < l.grace && (hook.Stop == course.Finishes || hook.Stop == course.Exits) {
			return // the hook ends with its container
		}
		if hook.Duration >= l.grace {
			if hook.Duration == pod.Forever {
				l.find("LC001", Error, path+".lifecycle.preStop",
					"never returns: SIGTERM comes at the end of the grace period of %v, and SIGKILL 2 s later; let it end", l.grace)
				return
			}
			l.find("LC001", Error, path+".lifecycle.preStop",
				"sleeps for %v of a grace period of %v: SIGTERM comes at its end, and SIGKILL 2 s later; "+
					"shorten the sleep or raise terminationGracePeriodSeconds above %v", hook.Duration, l.grace, hook.Duration)
		}
	})
}

// budget adds up the phases that follow each other: the app's SIGTERM comes after its preStop hook.
func (l *linting) budget() {
	if l.err != nil || l.settings.Mode() == drain.Fixed {
		return
	}
	minimum, exits := l.settings.MinimumDrain, l.settings.ExitOnZero
	c, applies := l.end.Drain, l.end.HasLastcall
	switch {
	case applies:
	case l.configured != "": // the library's
		c, applies = l.settings.Drain(), true
		c.GracePeriod = l.grace
	default: // Istio's agent has no last call, and none of lastcall's defaults
		applies = minimum.IsSet() && exits.IsSet() && exits.Value
		c = drain.Config{Mode: drain.IstioExitOnZero, MinimumDrain: minimum.Value, GracePeriod: l.grace}
	}
	if applies {
		for _, text := range c.Contradictions() {
			l.find("LC002", Warning, "spec.terminationGracePeriodSeconds", "%s", text)
		}
	}
	l.containers(func(c *corev1.Container, path string) {
		d := pod.ReadHook(&l.pod.Spec, c).Duration
		if c.Name == "istio-proxy" && minimum.IsSet() && d > 0 && d < l.grace && d+minimum.Value >= l.grace {
			l.find("LC002", Error, path+".lifecycle.preStop",
				"sleeps for %v and then drains for at least %v, of a grace period of %v: "+
					"replace the sleep with MINIMUM_DRAIN_DURATION", d, minimum.Value, l.grace)
		}
	})
}

func (l *linting) drains() {
	if l.err != nil {
		return
	}
	s := l.settings
	where := func(path string) string { return "metadata.annotations[proxy.istio.io/config]." + path }
	if s.DrainDuration.IsSet() && s.DrainDuration.Value > l.grace {
		l.find("LC003", Warning, where(s.DrainDuration.Path),
			"%v is longer than the grace period of %v, at whose end SIGKILL comes; "+
				"raise terminationGracePeriodSeconds", s.DrainDuration.Value, l.grace)
	}
	if s.TerminationDrain.IsSet() && s.Mode() == drain.Fixed && s.TerminationDrain.Value >= l.grace {
		l.find("LC003", Error, where(s.TerminationDrain.Path),
			"waits %v of a grace period of %v: SIGKILL comes first; "+
				"raise terminationGracePeriodSeconds", s.TerminationDrain.Value, l.grace)
	}
	// lastcall does not use it, but the pod may be one of Istio's, whose default it is.
	proxy := pod.Find(&l.pod.Spec, pod.IstioProxy)
	if s.TerminationDrain.IsSet() && !s.ExitOnZero.IsSet() && s.TerminationDrain.Value >= l.grace &&
		(proxy == nil || !pod.IsNative(proxy)) && !isInjected(l.pod) {
		l.find("LC003", Warning, where(s.TerminationDrain.Path),
			"without lastcall Istio's agent waits %v of a grace period of %v: SIGKILL comes first; "+
				"raise terminationGracePeriodSeconds", s.TerminationDrain.Value, l.grace)
	}
	if s.GracePeriod.IsSet() && s.GracePeriod.Value > l.grace {
		l.find("LC003", Error, where(s.GracePeriod.Path),
			"%v is longer than terminationGracePeriodSeconds %v, at whose end SIGKILL comes: remove it",
			s.GracePeriod.Value, l.grace)
	}
}

// otherMeshes: the timers of other meshes' proxies.
func (l *linting) otherMeshes() {
	for _, name := range []string{
		pod.LinkerdGrace, pod.LinkerdWait, pod.KumaDrain,
		pod.ConsulGrace, pod.DaprGrace, pod.DaprBlock,
	} {
		if d, ok := pod.MeshTimer(name, l.pod.Annotations[name]); ok && d >= l.grace {
			l.find("LC011", Error, "metadata.annotations["+name+"]",
				"%v of a grace period of %v: SIGKILL comes first; raise terminationGracePeriodSeconds above %v",
				d, l.grace, d)
		}
	}
}
