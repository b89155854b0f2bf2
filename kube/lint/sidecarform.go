package lint

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

// sidecarForm: the agent knows from --sidecar what the kubelet sends it at the end of the pod. Without that, an app's
// preStop hook means that only that container restarts.
func (l *linting) sidecarForm() {
	l.containers(func(c *corev1.Container, where string) {
		args, isLastcall := pod.AgentArguments(c)
		if !isLastcall || args[0] != "agent" || !l.hooksWait() {
			return
		}
		form := pod.Argument(args, "--sidecar")
		switch hook := pod.HookOf(c); {
		case form == "":
			want := "classic"
			if pod.IsNative(c) {
				want = "native"
			}
			l.find("LC018", Warning, where+".args",
				"lacks --sidecar %s: the restart of one app container then begins a drain, "+
					"and a request that hangs delays the restart until the last call", want)
		case (form == "native") != pod.IsNative(c):
			l.find("LC018", Error, where+".args",
				"--sidecar %s is wrong: native is an init container with restartPolicy Always, classic any other; "+
					"the agent mistakes the end of the pod for a container's restart", form)
		case form == "native" && hook == nil:
			l.find("LC018", Error, where+".lifecycle",
				"lacks a preStop: without its own hook the agent mistakes the end of the pod for a container's restart, "+
					"and the app receives SIGTERM within a second; add exec: {command: [/lastcall, wait, --sidecar]}")
		case form == "classic" && hook != nil:
			l.find("LC018", Error, where+".lifecycle.preStop",
				"delays the SIGTERM that signals the end of the pod to a classic sidecar: "+
					"the agent mistakes it for a container's restart; remove the hook")
		}
	})
}

// hooksWait reports whether an app's preStop hook calls the agent.
func (l *linting) hooksWait() (found bool) {
	l.containers(func(c *corev1.Container, _ string) {
		h := pod.HookOf(c)
		_, isAgent := pod.AgentArguments(c)
		switch {
		case isAgent:
		case pod.IsWaitGet(h):
			found = true
		default:
			flags, isWait := pod.WaitFlags(h)
			found = found || isWait && !pod.HasNoAgent(flags)
		}
	})
	return found
}
