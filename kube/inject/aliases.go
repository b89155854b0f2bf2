package inject

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// consulOn is the annotation that switches pod.ConsulGrace off if it is false.
const consulOn = "consul.hashicorp.com/enable-sidecar-proxy-lifecycle"

// aliases reads the settings of other meshes and returns the time for the pod's termination: they can shorten grace but
// not extend it, because SIGKILL comes at its end. minimum is the variable for the minimum drain; empty if the pod sets
// it with Istio's own setting, which has precedence.
func (j *injection) aliases(grace time.Duration, minimum string) time.Duration {
	for _, name := range []string{pod.LinkerdGrace, pod.KumaDrain, pod.ConsulGrace} {
		text, isSet := j.pod.Annotations[name]
		if !isSet || name == pod.ConsulGrace && j.pod.Annotations[consulOn] == "false" {
			continue
		}
		limit, ok := pod.MeshTimer(name, text)
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
	if text, isSet := j.pod.Annotations[pod.LinkerdWait]; isSet {
		wait, ok := pod.MeshTimer(pod.LinkerdWait, text)
		switch {
		case !ok:
			j.note("ignoring %s: %q is not a duration", pod.LinkerdWait, text)
		case minimum == "":
			j.note("ignoring %s: %s is set", pod.LinkerdWait, meshconfig.VariableMinimumDrain)
		case wait >= grace:
			j.note("ignoring %s %v: it must be shorter than the grace period of %v, or no time would remain for the drain",
				pod.LinkerdWait, wait, grace)
		default:
			j.env.set(minimum, wait.String())
			j.note("using %s as %s %v", pod.LinkerdWait, minimum, wait)
		}
	}
	return grace
}
