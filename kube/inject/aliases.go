package inject

import (
	"strconv"
	"strings"
	"time"
)

// The words of other meshes for the end of a proxy.
const (
	linkerdGrace = "config.linkerd.io/shutdown-grace-period"                // the longest drain; a duration
	linkerdWait  = "config.alpha.linkerd.io/proxy-wait-before-exit-seconds" // serve on that long first; seconds
	kumaDrain    = "kuma.io/sidecar-drain-time"                             // the longest drain; a duration
	consulOn     = "consul.hashicorp.com/enable-sidecar-proxy-lifecycle"    // false: the next one does nothing
	consulGrace  = "consul.hashicorp.com/sidecar-proxy-lifecycle-shutdown-grace-period-seconds"
)

// aliases reads the words of other meshes and returns the time that the pod's end
// may take: they can shorten grace, never lengthen it, since SIGKILL comes then.
// minimum is the variable that the time to serve on is set to; empty when the pod
// says it in Istio's words, which win.
func (j *injection) aliases(grace time.Duration, minimum string) time.Duration {
	for _, name := range []string{linkerdGrace, kumaDrain, consulGrace} {
		text, said := j.pod.Annotations[name]
		if !said || name == consulGrace && j.pod.Annotations[consulOn] == "false" {
			continue
		}
		limit, ok := parseAlias(name, text)
		switch {
		case !ok:
			j.note("%s is %q, which is not understood: without effect", name, text)
		case limit < time.Second:
			j.note("%s is %s: without effect, lastcall leaves as soon as nothing is in flight", name, text)
		case limit >= grace:
			j.note("%s is %s: without effect, the drain ends before the grace period of %v anyway", name, text, grace)
		default:
			grace = limit.Round(time.Second)
			j.note("%s is taken: the drain lasts %v at most", name, grace)
		}
	}
	if text, said := j.pod.Annotations[linkerdWait]; said {
		wait, ok := parseAlias(linkerdWait, text)
		switch {
		case !ok:
			j.note("%s is %q, which is not understood: without effect", linkerdWait, text)
		case minimum == "":
			j.note("%s is without effect: %s says the same", linkerdWait, variableMinimumDrain)
		case wait >= grace:
			j.note("%s is %v, not shorter than the grace period of %v: without effect, nothing would be left to drain in", linkerdWait, wait, grace)
		default:
			j.env.set(minimum, wait.String())
			j.note("%s is taken as %s %v", linkerdWait, minimum, wait)
		}
	}
	return grace
}

// parseAlias reads a duration, or seconds where the name says so.
func parseAlias(name, text string) (time.Duration, bool) {
	if strings.HasSuffix(name, "-seconds") {
		n, err := strconv.ParseUint(text, 10, 31)
		return time.Duration(n) * time.Second, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}
