package termination

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// HookKind is what a preStop hook does.
type HookKind string

const (
	NoHook     HookKind = "none"
	SleepHook  HookKind = "sleep"      // Kubernetes' own, or an exec that only sleeps
	DrainHook  HookKind = "drain"      // lastcall wait: until no request is in flight
	AppEndHook HookKind = "app's end"  // lastcall wait --sidecar: until the apps have ended
	NotifyHook HookKind = "notify"     // starts a proxy's drain and returns at once: Istio's native sidecar
	LoopHook   HookKind = "loop"       // waits in a shell's loop, such as over netstat
	ScriptHook HookKind = "script"     // another program, of unknown duration
	HTTPHook   HookKind = "http"       // an HTTP request to the app, of unknown duration
	TCPHook    HookKind = "tcp socket" // does nothing in any version of Kubernetes
)

// Hook is a container's preStop.
type Hook struct {
	Kind HookKind

	// Duration is how long it takes, or at least takes if it is not IsKnown.
	Duration time.Duration
	IsKnown  bool

	// First, of DrainHook, is the app's own hook that it runs before it waits; nil for none.
	First *Hook

	// Text is the hook as the manifest has it, in one line.
	Text string
}

// readHook describes a container's preStop hook.
func readHook(h *corev1.LifecycleHandler) Hook {
	switch {
	case h == nil:
		return Hook{Kind: NoHook, IsKnown: true}
	case h.Sleep != nil:
		d, _ := carrier.Sleeps(h)
		return Hook{Kind: SleepHook, Duration: d, IsKnown: true, Text: fmt.Sprintf("sleep %v", d)}
	case carrier.IsWaitGet(h):
		return Hook{Kind: DrainHook, Text: "lastcall: GET :" + h.HTTPGet.Port.String() + "/wait"} // the token stays secret
	case h.HTTPGet != nil:
		return Hook{Kind: HTTPHook, Text: "GET :" + h.HTTPGet.Port.String() + h.HTTPGet.Path}
	case h.TCPSocket != nil:
		return Hook{Kind: TCPHook, IsKnown: true, Text: "tcpSocket, which the kubelet ignores"}
	case h.Exec == nil || len(h.Exec.Command) == 0:
		return Hook{Kind: NoHook, IsKnown: true}
	}
	return readCommand(h)
}

func readCommand(h *corev1.LifecycleHandler) Hook {
	command := h.Exec.Command
	out := Hook{Kind: ScriptHook, Text: strings.Join(strings.Fields(strings.Join(command, " ")), " ")}
	d, isLoop := carrier.Sleeps(h)
	_, isSleep := carrier.OnlySleep(h)
	flags, isWait := carrier.WaitFlags(h)
	switch {
	case isWait && slices.Contains(flags, "--sidecar") && slices.Contains(flags, "--envoy"):
		out.Kind = AppEndHook
	case isWait:
		out.Kind = DrainHook
		if own := inject.Restored(h); own != nil {
			first := readHook(own)
			out.First, out.Duration = &first, first.Duration
		}
	case carrier.IsPilotDrain(h):
		out.Kind, out.IsKnown = NotifyHook, true
	case isSleep:
		out.Kind, out.Duration, out.IsKnown = SleepHook, d, true
	case isLoop:
		out.Kind = LoopHook
	default:
		out.Duration = d
	}
	return out
}

// String is the hook for people.
func (h Hook) String() string {
	switch h.Kind {
	case NoHook:
		return "none"
	case SleepHook:
		return fmt.Sprintf("sleep %v", h.Duration)
	case DrainHook:
		if h.First != nil {
			return "lastcall wait: first " + h.First.String() + ", then until no request is in flight"
		}
		return "lastcall wait: until no request is in flight"
	case AppEndHook:
		return "lastcall wait --sidecar: until the apps have ended"
	case NotifyHook:
		return "pilot-agent request POST drain"
	}
	return h.Text
}
