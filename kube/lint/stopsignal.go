package lint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// Signals that a program cannot handle.
var unheard = []string{"KILL", "STOP"}

// Signals that stop pilot-agent and lastcall; lastcall has a flag for more.
var (
	stopsPilot    = []string{"TERM", "INT"}
	stopsLastcall = []string{"TERM", "INT", "QUIT"}
)

// stopSignals: the signal that the kubelet sends instead of SIGTERM must be one that the container's program handles.
func (l *linting) stopSignals() {
	l.containers(func(c *corev1.Container, where string) {
		if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
			return
		}
		where += ".lifecycle.stopSignal"
		signal := string(*c.Lifecycle.StopSignal)
		name := strings.TrimPrefix(signal, "SIG")
		arguments, isLastcall := carrier.AgentArguments(c)
		switch {
		case slices.Contains(unheard, name):
			l.find("LC017", Error, where, "%s cannot be handled: requests in flight are lost; use SIGTERM, or the signal that stops the program gracefully", signal)
		case c.Name == "istio-proxy" && !slices.Contains(stopsPilot, name):
			l.find("LC017", Error, where, "pilot-agent does not stop at %s: nothing is drained, and SIGKILL ends it; remove the setting", signal)
		case isLastcall && !slices.Contains(stopsLastcall, name) && !slices.Contains(signalsOf(arguments), name):
			l.find("LC017", Error, where, "lastcall does not stop at %s: nothing is drained, and SIGKILL ends it; remove the setting, or add --stop-signal %s", signal, name)
		}
	})
}

// signalsOf are the signals of --stop-signal, without SIG. The flag may be repeated and may list several.
func signalsOf(arguments []string) []string {
	all := strings.Split(strings.Join(values(arguments, "--stop-signal"), ","), ",")
	for i, name := range all {
		all[i] = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "SIG")
	}
	return all
}
