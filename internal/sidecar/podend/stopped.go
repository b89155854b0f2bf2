package podend

import (
	"slices"
	"time"
)

// LeastPeriod is the kubelet's shortest grace period (calculateEffectiveGracePeriod of pkg/kubelet): a pod whose own is
// 0 has its hooks run for so long, then its stop signals, and 2 s later SIGKILL.
const LeastPeriod = time.Second

// Stopped is the pod as the kubelet stops it, in which each app reacts to what its own hook does to it.
func (p *Pod) Stopped() *Pod {
	out := *p
	out.Grace = max(p.Grace, LeastPeriod)
	out.Containers = slices.Clone(p.Containers)
	for i := range out.Containers {
		if h := out.Containers[i].Hook.own(); h.Stops && h.Stop != "" {
			out.Containers[i].Reaction = h.Stop
		}
	}
	return &out
}

// own is the hook, or the app's own that lastcall's runs.
func (h Hook) own() Hook {
	if h.Own != nil {
		return *h.Own
	}
	return h
}

// stopsAt is when a container's hook ends its app, if it does or may do so.
func (p *Pod) stopsAt(k *Container, tr Traffic) (time.Duration, bool) {
	h := k.Hook.own()
	at := h.StopsAt
	if k.Hook.Own != nil && !k.Hook.OwnFirst {
		at = p.after(tr, at)
	}
	return min(at, p.Grace), h.Stops || h.MayStop
}
