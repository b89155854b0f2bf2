package lint

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Signals that end a program without it hearing of it, or stop it where it is.
var unheard = []string{"KILL", "STOP"}

// Signals that pilot-agent and lastcall stop at; lastcall has a flag for more.
var (
	stopsPilot    = []string{"TERM", "INT"}
	stopsLastcall = []string{"TERM", "INT", "QUIT"}
)

// stopSignals: what the kubelet sends in place of SIGTERM is the container's own affair, as long as its program
// knows it.
func (l *linting) stopSignals() {
	l.containers(func(c *corev1.Container, where string) {
		if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
			return
		}
		where += ".lifecycle.stopSignal"
		signal := string(*c.Lifecycle.StopSignal)
		name := strings.TrimPrefix(signal, "SIG")
		arguments, isLastcall := lastcallArguments(c)
		switch {
		case slices.Contains(unheard, name):
			l.find("LC017", Error, where, "%s cannot be handled: requests in flight are lost; write SIGTERM, or the signal at which its program stops gracefully", signal)
		case c.Name == "istio-proxy" && !slices.Contains(stopsPilot, name):
			l.find("LC017", Error, where, "pilot-agent does not stop at %s: nothing is drained, and SIGKILL ends it; leave it out", signal)
		case isLastcall && !slices.Contains(stopsLastcall, name) && !slices.Contains(flagValues(arguments, "--stop-signal"), name):
			l.find("LC017", Error, where, "lastcall does not stop at %s: nothing is drained, and SIGKILL ends it; leave it out, or add --stop-signal %s", signal, name)
		}
	})
}

// lastcallArguments are those of lastcall run and lastcall agent, up to the app's own.
func lastcallArguments(c *corev1.Container) ([]string, bool) {
	all := slices.Concat(c.Command, c.Args)
	switch {
	case len(c.Command) > 0 && path.Base(c.Command[0]) == "lastcall":
		all = all[1:]
	case len(c.Command) == 0 && (c.Name == "lastcall" || strings.Contains(c.Image, "lastcall")):
	default:
		return nil, false
	}
	if len(all) == 0 || all[0] != "run" && all[0] != "agent" {
		return nil, false
	}
	if i := slices.Index(all, "--"); i >= 0 {
		all = all[:i]
	}
	return all, true
}

// flagValues are the signals of a flag that may be repeated and take several at once, without SIG.
func flagValues(arguments []string, flag string) []string {
	var out []string
	for i, arg := range arguments {
		value, joined := strings.CutPrefix(arg, flag+"=")
		if !joined {
			if arg != flag || i+1 == len(arguments) {
				continue
			}
			value = arguments[i+1]
		}
		for name := range strings.SplitSeq(value, ",") {
			out = append(out, strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "SIG"))
		}
	}
	return out
}
