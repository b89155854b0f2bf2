package pod

import (
	"cmp"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PathWait, followed by the pod's token, is the agent's path that drains the pod: the httpGet form of lastcall's hook.
const PathWait = "/wait/"

// IsWaitGet reports whether a hook is lastcall's httpGet.
func IsWaitGet(h *corev1.LifecycleHandler) bool {
	return h != nil && h.HTTPGet != nil && strings.HasPrefix(h.HTTPGet.Path, PathWait)
}

// WaitFlags are the flags of a hook that runs lastcall wait, without the app's own command (Own); false for
// other hooks.
func WaitFlags(h *corev1.LifecycleHandler) ([]string, bool) {
	if h == nil || h.Exec == nil || len(h.Exec.Command) < 2 || path.Base(h.Exec.Command[0]) != "lastcall" {
		return nil, false
	}
	flags := h.Exec.Command[1:]
	if i := slices.Index(flags, "--"); i >= 0 {
		flags = flags[:i]
	}
	i := slices.Index(flags, "wait")
	if i < 0 {
		return nil, false
	}
	return flags[i+1:], true
}

// Argument is the value of a flag, as --flag VALUE or --flag=VALUE, the last one; empty if there is none.
func Argument(args []string, flag string) (value string) {
	for i, arg := range args {
		if v, ok := strings.CutPrefix(arg, flag+"="); ok {
			value = v
		} else if arg == flag && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			value = args[i+1]
		}
	}
	return value
}

// HasNoAgent reports whether lastcall wait, with these flags, watches the app itself instead of calling an agent.
func HasNoAgent(flags []string) bool { return Argument(flags, "--until") != "" || watches(flags) }

// AwaitsSignals reports whether lastcall wait, with these flags, watches the signals of a worker alone.
func AwaitsSignals(flags []string) bool { return Argument(flags, "--until") != "" && !watches(flags) }

func watches(flags []string) bool {
	return Argument(flags, "--ports") != "" || Argument(flags, "--envoy") != ""
}

// IsWorker reports whether a container's hook waits for the signals of a worker, and no port of it is for requests: it
// has no clients.
func IsWorker(c *corev1.Container) bool {
	flags, _ := WaitFlags(HookOf(c))
	isUnlisted := Argument(flags, "--ports") != "" && len(c.Ports) == 0
	return Argument(flags, "--until") != "" && !isUnlisted && !HasRequests(c)
}

// Own is the argument of lastcall wait --after or --before, a command or a URL with header fields; nil for none.
func Own(h *corev1.LifecycleHandler) []string {
	if _, ok := WaitFlags(h); !ok {
		return nil
	}
	if i := slices.Index(h.Exec.Command, "--"); i >= 0 {
		return h.Exec.Command[i+1:]
	}
	return nil
}

// HookOf is a container's preStop hook; nil for none.
func HookOf(c *corev1.Container) *corev1.LifecycleHandler {
	if c.Lifecycle == nil {
		return nil
	}
	return c.Lifecycle.PreStop
}

// SetHook replaces a container's hook; nil removes it.
func SetHook(c *corev1.Container, h *corev1.LifecycleHandler) {
	c.Lifecycle = cmp.Or(c.Lifecycle, &corev1.Lifecycle{})
	if c.Lifecycle.PreStop = h; *c.Lifecycle == (corev1.Lifecycle{}) {
		c.Lifecycle = nil
	}
}

// AgentArguments are those of a container that is lastcall agent or lastcall run, without the app's own; false for
// others.
func AgentArguments(c *corev1.Container) ([]string, bool) {
	all := slices.Concat(c.Command, c.Args)
	switch {
	case len(c.Command) > 0 && path.Base(c.Command[0]) == "lastcall":
		all = all[1:]
	case len(c.Command) == 0 && (c.Name == "lastcall" || strings.Contains(c.Image, "lastcall")):
	default:
		return nil, false
	}
	if i := slices.Index(all, "--"); i > 0 && all[0] == "capture" { // then becomes the program after it
		all = all[min(i+2, len(all)):]
	}
	if len(all) == 0 || all[0] != "run" && all[0] != "agent" {
		return nil, false
	}
	if i := slices.Index(all, "--"); i >= 0 {
		all = all[:i]
	}
	return all, true
}

// IsNative reports whether an init container is a native sidecar.
func IsNative(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// IsPilotDrain reports whether a hook is the one that Istio gives a native sidecar.
func IsPilotDrain(h *corev1.LifecycleHandler) bool {
	return h != nil && h.Exec != nil && slices.Contains(h.Exec.Command, "pilot-agent") &&
		slices.Contains(h.Exec.Command, "drain")
}

// ReplacesPilotDrain reports whether a container has a lifecycle without Istio's hook of a native sidecar, or
// lastcall's, which drains Envoy too. Istio merges its own into a container with the image auto that has no hook.
func ReplacesPilotDrain(c *corev1.Container) bool {
	if h := HookOf(c); c.Lifecycle == nil || IsPilotDrain(h) || c.Image == "auto" && h == nil {
		return false
	}
	flags, isWait := WaitFlags(HookOf(c))
	return !isWait || !slices.Contains(flags, "--envoy") || !slices.Contains(flags, "--sidecar")
}
