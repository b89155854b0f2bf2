package inject

import (
	"strconv"
	"strings"
	"time"
)

// Settings of other meshes for the termination of a proxy.
const (
	linkerdGrace = "config.linkerd.io/shutdown-grace-period"                // the longest drain; a duration
	linkerdWait  = "config.alpha.linkerd.io/proxy-wait-before-exit-seconds" // minimum drain; seconds
	kumaDrain    = "kuma.io/sidecar-drain-time"                             // the longest drain; a duration
	consulOn     = "consul.hashicorp.com/enable-sidecar-proxy-lifecycle"    // false: the next one has no effect
	consulGrace  = "consul.hashicorp.com/sidecar-proxy-lifecycle-shutdown-grace-period-seconds"
)

// aliases reads the settings of other meshes and returns the time for the pod's termination: they can shorten grace but
// not extend it, because SIGKILL comes at its end. minimum is the variable for the minimum drain; empty if the pod sets
// it with Istio's own setting, which has precedence.
func (j *injection) aliases(grace time.Duration, minimum string) time.Duration {
	for _, name := range []string{linkerdGrace, kumaDrain, consulGrace} {
		text, said := j.pod.Annotations[name]
		if !said || name == consulGrace && j.pod.Annotations[consulOn] == "false" {
			continue
		}
		limit, ok := parseAlias(name, text)
		switch {
		case !ok:
			j.note("ignoring %s: %q is not a duration", name, text)
		case limit < time.Second:
			j.note("ignoring %s %s: lastcall exits as soon as no request is in flight", name, text)
		case limit >= grace:
			j.note("ignoring %s %s: the drain ends before the grace period of %v in any case", name, text, grace)
		default:
			grace = limit.Round(time.Second)
			j.note("using %s: the drain lasts at most %v", name, grace)
		}
	}
	if text, said := j.pod.Annotations[linkerdWait]; said {
		wait, ok := parseAlias(linkerdWait, text)
		switch {
		case !ok:
			j.note("ignoring %s: %q is not a duration", linkerdWait, text)
		case minimum == "":
			j.note("ignoring %s: %s is set", linkerdWait, variableMinimumDrain)
		case wait >= grace:
			j.note("ignoring %s %v: it must be shorter than the grace period of %v, or no time would remain for the drain", linkerdWait, wait, grace)
		default:
			j.env.set(minimum, wait.String())
			j.note("using %s as %s %v", linkerdWait, minimum, wait)
		}
	}
	return grace
}

// parseAlias reads a duration, or seconds if the name ends so.
func parseAlias(name, text string) (time.Duration, bool) {
	if strings.HasSuffix(name, "-seconds") {
		n, err := strconv.ParseUint(text, 10, 31)
		return time.Duration(n) * time.Second, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}
