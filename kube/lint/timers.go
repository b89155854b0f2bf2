package lint

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

func (l *linting) preStopSleeps(c *corev1.Container, path string) {
	hook := l.ownHook(c).Hook
	if hook.Own != nil {
		hook = *hook.Own
	}
	if hook.Stops && hook.StopsAt < l.grace && (hook.Stop == podend.Finishes || hook.Stop == podend.Exits) {
		return // the hook ends with its container
	}
	switch {
	case hook.Duration == pod.Forever:
		l.find("LC001", Error, path+".lifecycle.preStop",
			"never returns: SIGTERM comes at the end of the grace period of %v, and SIGKILL %g s later; let it end",
			l.grace, drain.LeastGrace.Seconds())
	case hook.Duration >= l.grace && hook.Kind != podend.HTTPHook: // Knative's, which ends when no request comes
		result := fmt.Sprintf("SIGTERM comes at its end, and SIGKILL %g s later", drain.LeastGrace.Seconds())
		if h := pod.HookOf(c); h.Sleep != nil && hook.Duration > l.grace {
			result = "the API server refuses it"
		}
		l.find("LC001", Error, path+".lifecycle.preStop", "sleeps for %v of a grace period of %v: %s; "+
			"shorten the sleep or raise terminationGracePeriodSeconds above %v",
			hook.Duration, l.grace, result, hook.Duration)
	}
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
		l.unknownGrace(c, path)
	})
}

// unknownGrace: a program of lastcall that does not learn of a longer grace period ends requests long before it, and
// SIGKILL comes before it has ended those of a shorter one.
func (l *linting) unknownGrace(c *corev1.Container, path string) {
	flags, isAgent := pod.AgentArguments(c)
	annotations := l.pod.Annotations
	if !isAgent {
		flags, _ = pod.WaitFlags(pod.HookOf(c))
		annotations = nil // its hook reads none
	}
	_, isSet := pod.Variable(c, meshconfig.VariableGracePeriod)
	if isSet || len(c.EnvFrom) > 0 || pod.Argument(flags, "--timeout") != "" || !isAgent && !pod.HasNoAgent(flags) ||
		l.grace == drain.DefaultGracePeriod || l.asks() {
		return
	}
	if s, err := inject.SettingsOf("", annotations, c); err == nil && !s.GracePeriod.IsSet() {
		result := "SIGKILL may come first"
		if l.grace > drain.DefaultGracePeriod {
			result = "requests are ended that much earlier"
		}
		l.find("LC002", Warning, path+".env", "%s is not set: lastcall takes the default, %v, for the grace period, "+
			"which is %v, so %s; set it to %.0f", meshconfig.VariableGracePeriod,
			drain.DefaultGracePeriod, l.grace, result, l.grace.Seconds())
	}
}

func (l *linting) drains() {
	if l.err != nil {
		return
	}
	s := l.settings
	proxy := pod.Find(&l.pod.Spec, pod.IstioProxy)
	isNative := inject.IstioForm(l.pod) == inject.Native || proxy != nil && pod.IsNative(proxy)
	for _, row := range []struct {
		set      meshconfig.Value[time.Duration]
		isWrong  bool
		severity Severity
		text     string
	}{
		{s.DrainDuration, s.DrainDuration.Value > l.grace, Warning,
			"%v is longer than the grace period of %v, at whose end SIGKILL comes; " +
				"raise terminationGracePeriodSeconds"},
		{s.TerminationDrain, s.Mode() == drain.Fixed && s.TerminationDrain.Value >= l.grace, Error,
			"waits %v of a grace period of %v: SIGKILL comes first; raise terminationGracePeriodSeconds"},
		// lastcall does not use it, but the pod may be one of Istio's, whose default it is.
		{s.TerminationDrain,
			!s.ExitOnZero.IsSet() && s.TerminationDrain.Value >= l.grace && !isNative && !isInjected(l.pod), Warning,
			"without lastcall Istio's agent waits %v of a grace period of %v: SIGKILL comes first; " +
				"raise terminationGracePeriodSeconds"},
		{s.GracePeriod, s.GracePeriod.Value > l.grace, Error,
			"%v is longer than terminationGracePeriodSeconds %v, at whose end SIGKILL comes: remove it"},
	} {
		if row.set.IsSet() && row.isWrong {
			where := "metadata.annotations[proxy.istio.io/config]." + row.set.Path
			l.find("LC003", row.severity, where, row.text, row.set.Value, l.grace)
		}
	}
}

// meshTimers are annotations of other meshes.
var meshTimers = []string{
	pod.LinkerdGrace, pod.LinkerdWait, pod.KumaDrain, pod.ConsulGrace, pod.DaprGrace, pod.DaprBlock,
}

// otherMeshes: the timers of other meshes' proxies.
func (l *linting) otherMeshes() {
	for _, name := range meshTimers {
		if d, ok := pod.MeshTimer(name, l.pod.Annotations[name]); ok && d >= l.grace {
			l.find("LC011", Error, "metadata.annotations["+name+"]",
				"%v of a grace period of %v: SIGKILL comes first; raise terminationGracePeriodSeconds above %v",
				d, l.grace, d)
		}
	}
}

// soon is the time below which no client has noticed the end of a pod.
const soon = time.Second

// stopsItself: a hook that ends the app delays nothing, whatever it does afterwards. lastcall's waits before it runs
// it.
func (l *linting) stopsItself(c *corev1.Container, where string) {
	if l.job || l.hasLastcall() {
		return
	}
	hook := pod.ReadHook(&l.pod.Spec, c)
	if !hook.Stops || hook.StopsAt >= soon || !l.isServing(c) || pod.IsNative(c) {
		return
	}
	after := "it refuses the connections of clients that still have its address"
	if hook.Duration > 0 && hook.Duration < pod.Forever {
		after += ", and the sleep of " + hook.Duration.String() + " comes too late"
	}
	l.find("LC035", Warning, where+".lifecycle.preStop",
		"ends the app at once (%s): %s; sleep before it%s", hook.Stopper(), after,
		l.unlessUnfit(", or use lastcall, which drains first"))
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
			list := "spec.containers["
			if pod.IsNative(other) {
				list = "spec.initContainers["
			}
			l.find("LC036", Warning, list+other.Name+"]",
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
func (l *linting) reloads(c *corev1.Container, where string) {
	signal, _ := pod.StopSignal(c)
	if r, why := pod.Reacts(&l.pod.Spec, c, signal, true); r == podend.Reloads {
		l.find("LC037", Warning, where+".command",
			"%s: its requests are cut, it starts again, and SIGKILL ends it; "+
				"add --die-on-term, or lifecycle: {stopSignal: SIGQUIT} and os: {name: linux}", why)
	}
}

// ownTimers: a server that waits for longer than is left of the grace period. One that exits at its signal waits for no
// timer.
func (l *linting) ownTimers(c *corev1.Container, where string) {
	if pod.IsProxy(&l.pod.Spec, c) && c.Name != "daprd" {
		return
	}
	own := pod.ReadHook(&l.pod.Spec, c)
	signal, _ := pod.StopSignal(c)
	reaction, _ := pod.Reacts(&l.pod.Spec, c, signal, true)
	if reaction == podend.Exits && !own.Stops || own.Stop == podend.Exits {
		return
	}
	hook := own.Duration
	if l.hasLastcall() {
		hook = 0 // the drain comes first, and the rest is the last call's
	}
	for _, t := range pod.TimersOf(c) {
		if left := l.grace - hook; hook < l.grace && t.Wait > left {
			l.find("LC038", Warning, where,
				"waits for up to %v at its end (%s), and %v of the grace period of %v are left after its preStop: "+
					"SIGKILL cuts what it still waits for; raise terminationGracePeriodSeconds above %v, "+
					"or lower the timer",
				t.Wait, t.Name, left, l.grace, hook+t.Wait)
		}
	}
}
