package termination

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// readHook describes a container's preStop hook.
func readHook(h *corev1.LifecycleHandler) course.Hook {
	switch {
	case h == nil:
		return course.Hook{Kind: course.NoHook, IsKnown: true}
	case h.Sleep != nil:
		d, _ := carrier.Sleeps(h)
		return course.Hook{Kind: course.SleepHook, Duration: d, IsKnown: true, Text: fmt.Sprintf("sleep %v", d)}
	case carrier.IsWaitGet(h):
		// The token stays secret.
		return course.Hook{Kind: course.DrainHook, Text: "lastcall: GET :" + h.HTTPGet.Port.String() + "/wait"}
	case h.HTTPGet != nil:
		return course.Hook{Kind: course.HTTPHook, Text: "GET :" + h.HTTPGet.Port.String() + h.HTTPGet.Path}
	case h.TCPSocket != nil:
		return course.Hook{Kind: course.TCPHook, IsKnown: true, Text: "tcpSocket, which the kubelet ignores"}
	case h.Exec == nil || len(h.Exec.Command) == 0:
		return course.Hook{Kind: course.NoHook, IsKnown: true}
	}
	return readCommand(h)
}

func readCommand(h *corev1.LifecycleHandler) course.Hook {
	command := h.Exec.Command
	out := course.Hook{Kind: course.ScriptHook, Text: strings.Join(strings.Fields(strings.Join(command, " ")), " ")}
	d, isLoop := carrier.Sleeps(h)
	_, isSleep := carrier.OnlySleep(h)
	flags, isWait := carrier.WaitFlags(h)
	switch {
	case isWait && slices.Contains(flags, "--sidecar") && slices.Contains(flags, "--envoy"):
		out.Kind = course.AppEndHook
	case isWait:
		out.Kind = course.DrainHook
		if own := inject.Restored(h); own != nil {
			hook := readHook(own)
			out.Own, out.OwnFirst, out.Duration = &hook, slices.Contains(h.Exec.Command, "--before"), hook.Duration
		}
	case carrier.IsPilotDrain(h):
		out.Kind, out.IsKnown = course.NotifyHook, true
	case isSleep:
		out.Kind, out.Duration, out.IsKnown = course.SleepHook, d, true
	case isLoop:
		out.Kind = course.LoopHook
	default:
		out.Duration = d
	}
	return out
}
