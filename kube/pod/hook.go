package pod

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
)

// Action is the kind of a step.
type Action string

const (
	Sleep   Action = "sleep"   // waits for Step.For
	Signal  Action = "signal"  // ends the app, by a signal or in another way
	Wait    Action = "wait"    // lastcall's, Envoy's: until no request is in flight
	Runs    Action = "runs"    // a command that returns at once and leaves the app alone
	Fails   Action = "fails"   // returns at once, because it cannot run
	Unknown Action = "unknown" // takes For at least
)

// Step is one command of a hook.
type Step struct {
	Do  Action
	For time.Duration

	Most    time.Duration   // of Unknown: how long it takes at most; 0 if there is no limit
	MayStop bool            // of Unknown: it may end the app
	Stop    podend.Reaction // of Signal: what the app then does
	By      string          // of Signal: the signal, without SIG; empty for another way

	Text string // the command; of Fails, the reason
}

// Hook is a preStop hook, as its steps.
type Hook struct {
	podend.Hook
	Steps []Step
}

// Forever is longer than each grace period.
var Forever = Seconds(1 << 40)

// ReadHook reads the preStop hook of a container.
func ReadHook(spec *corev1.PodSpec, c *corev1.Container) Hook {
	h := HookOf(c)
	known := func(kind podend.HookKind, text string, steps ...Step) Hook {
		return summary(podend.Hook{Kind: kind, Text: text}, steps)
	}
	if h == nil {
		return known(podend.NoHook, "")
	}
	if why := Void(h, c); why != "" {
		return known(podend.ScriptHook, why, Step{Do: Fails, Text: why})
	}
	switch {
	case h.Sleep != nil:
		d := Seconds(h.Sleep.Seconds)
		return known(podend.SleepHook, fmt.Sprintf("sleep %v", d), Step{Do: Sleep, For: d})
	case IsWaitGet(h): // the token stays secret
		text := "lastcall: GET :" + h.HTTPGet.Port.String() + "/wait"
		return Hook{Hook: podend.Hook{Kind: podend.DrainHook, Text: text}, Steps: []Step{{Do: Wait}}}
	case h.HTTPGet != nil:
		get := h.HTTPGet
		text := "GET :" + get.Port.String() + get.Path
		r := newReading(spec, c)
		if get.Host != "" && isLoopback(get.Host) && !spec.HostNetwork {
			r.fail("host " + get.Host + " is the node, from which the kubelet connects")
		} else {
			r.request(get.Host, int(PortOf(c, get.Port)), get.Path, true, text)
		}
		return known(podend.HTTPHook, text, r.steps...)
	}
	command := h.Exec.Command
	text := strings.Join(strings.Fields(strings.Join(command, " ")), " ")
	if flags, isWait := WaitFlags(h); isWait {
		out := Hook{Hook: podend.Hook{Kind: podend.DrainHook, Text: text}, Steps: []Step{{Do: Wait}}}
		if slices.Contains(flags, "--sidecar") && slices.Contains(flags, "--envoy") {
			out.Kind = podend.AppEndHook
		} else if own := Restored(h); own != nil {
			with := *c
			with.Lifecycle = &corev1.Lifecycle{PreStop: own}
			own := ReadHook(spec, &with).Hook
			out.Own, out.OwnFirst, out.Duration = &own, slices.Contains(h.Exec.Command, "--before"), own.Duration
		}
		return out
	}
	if IsPilotDrain(h) {
		return Hook{Hook: podend.Hook{Kind: podend.NotifyHook, IsKnown: true, Text: text}, Steps: []Step{{Do: Wait}}}
	}
	r := newReading(spec, c)
	r.call(command)
	r.hold()
	out := known(podend.ScriptHook, text, r.steps...)
	switch {
	case out.OnlySleeps():
		out.Kind = podend.SleepHook
	case r.awaitsSockets && !out.IsKnown:
		out.Kind = podend.LoopHook
	}
	return out
}

// Void is why the API server does not admit a hook, or the kubelet cannot begin it; empty if neither is so.
func Void(h *corev1.LifecycleHandler, c *corev1.Container) string {
	have := []bool{h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil, h.Sleep != nil}
	switch n := len(slices.DeleteFunc(have, func(is bool) bool { return !is })); {
	case n == 0:
		return "it has none of exec, httpGet and sleep: the API server refuses it"
	case n > 1:
		return "it has more than one of exec, httpGet, tcpSocket and sleep: the API server refuses it"
	case h.Exec != nil && len(h.Exec.Command) == 0:
		return "exec has no command: the API server refuses it"
	case h.Sleep != nil && h.Sleep.Seconds < 0:
		return "sleep has a negative time: the API server refuses it"
	case h.HTTPGet != nil && PortOf(c, h.HTTPGet.Port) == 0 && !IsWaitGet(h):
		return "port " + h.HTTPGet.Port.String() + " is no port of its container"
	case h.TCPSocket != nil:
		return "the kubelet does not support tcpSocket"
	}
	return ""
}

// summarize sums up steps alone.
func summarize(steps []Step) Hook { return summary(podend.Hook{}, steps) }

// summary sums the steps up.
func summary(h podend.Hook, steps []Step) Hook {
	h.IsKnown = true
	most := time.Duration(0)
	for _, s := range steps {
		switch {
		case s.Do == Signal && !h.Stops:
			h.Stops, h.StopsLater, h.StopsAt, h.Stop = true, !h.IsKnown, h.Duration, s.Stop
		case s.Do == Unknown:
			if s.MayStop && !h.Stops && !h.MayStop {
				h.MayStop, h.StopsAt = true, h.Duration
			}
			if h.IsKnown = false; s.Most == 0 {
				s.Most = Forever
			}
		}
		h.Duration = min(h.Duration+s.For, Forever)
		most = min(most+max(s.For, s.Most), Forever)
	}
	if !h.IsKnown && most < Forever {
		h.Most = most
	}
	return Hook{Hook: h, Steps: steps}
}

// ends reports whether the hook ends the app, or may.
func (h Hook) ends() bool { return h.Stops || h.MayStop }

// OnlySleeps reports whether the hook does nothing but sleep.
func (h Hook) OnlySleeps() bool {
	return h.Kind == podend.SleepHook || h.Duration > 0 &&
		!slices.ContainsFunc(h.Steps, func(s Step) bool { return s.Do != Sleep })
}

// SleepsAndStops is how long a hook sleeps that then ends the app, and does nothing else; 0 for others. The kubelet's
// stop signal can take the place of its command, if it passes to the app and may do the same.
func (h Hook) SleepsAndStops(spec *corev1.PodSpec, c *corev1.Container) time.Duration {
	n := len(h.Steps)
	if !h.Stops || !h.IsKnown || n != 2 || h.Steps[0].Do != Sleep || h.Steps[1].Do != Signal {
		return 0
	}
	signal, _ := StopSignal(c)
	process, _ := Front(spec, c, signal)
	reaction, _ := Reacts(spec, c, signal, true)
	by := h.Steps[1].By
	isOther := reaction == podend.Unsure && by != "" && "SIG"+by != signal
	if process != "" || reaction == podend.Ignores || reaction == podend.Reloads || isOther {
		return 0
	}
	return h.StopsAt
}

// Failure is why the hook, or a part of it, cannot run; empty if it may all work.
func (h Hook) Failure() string { return h.first(Fails) }

// Stopper is the command that stops the app, before the kubelet's signal; empty if none does for certain.
func (h Hook) Stopper() string { return h.first(Signal) }

// first is the text of the first step of a kind; empty without one.
func (h Hook) first(do Action) string {
	for _, s := range h.Steps {
		if s.Do == do {
			return s.Text
		}
	}
	return ""
}

// Restored is the hook that lastcall's runs in addition to its wait; nil for none.
func Restored(h *corev1.LifecycleHandler) *corev1.LifecycleHandler {
	before := Own(h)
	if len(before) == 0 {
		return nil
	}
	at, err := url.Parse(before[0])
	if err != nil || at.Scheme != "http" && at.Scheme != "https" {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: before}}
	}
	scheme := corev1.URIScheme(strings.ToUpper(at.Scheme))
	get := &corev1.HTTPGetAction{Path: at.RequestURI(), Port: intstr.Parse(at.Port()), Scheme: scheme}
	if host := at.Hostname(); host != "localhost" {
		get.Host = host
	}
	for _, line := range before[1:] {
		name, value, _ := strings.Cut(line, ": ")
		get.HTTPHeaders = append(get.HTTPHeaders, corev1.HTTPHeader{Name: name, Value: value})
	}
	return &corev1.LifecycleHandler{HTTPGet: get}
}
