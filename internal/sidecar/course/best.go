package course

import (
	"slices"
	"time"
)

// stopped is the pod in which each app reacts to what its own hook does to it.
func (p *Pod) stopped() *Pod {
	out := *p
	out.Containers = slices.Clone(p.Containers)
	for i := range out.Containers {
		if h := out.Containers[i].PreStop.own(); h.Stops && h.Stop != "" {
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
	h := k.PreStop.own()
	at := h.StopsAt
	if k.PreStop.Own != nil && !k.PreStop.OwnFirst {
		at = min(p.drained(tr)+at, p.LastCall)
	}
	return min(at, p.Grace), h.Stops || h.MayStop
}

// Best is the pod in which each thing that is unknown is as good for clients as it can be: between the courses of the
// two lies what will happen.
func (p *Pod) Best() *Pod {
	out := *p.stopped()
	for i := range out.Containers {
		k := &out.Containers[i]
		switch k.Reaction {
		case Unsure:
			k.Reaction = Ignores
		case ClosesPort:
			k.Reaction = Finishes
		}
		k.PreStop = k.PreStop.best(p.Grace, k.Role)
		if own := k.PreStop.Own; own != nil {
			best := own.best(p.Grace, App)
			k.PreStop.Own = &best
		}
	}
	return &out
}

// best is a hook that takes as long as it can.
func (h Hook) best(grace time.Duration, role Role) Hook {
	if h.Stop == Unsure || h.Stop == ClosesPort {
		h.Stop = "" // stopped has made it the reaction
	}
	isOpen := h.Kind == ScriptHook || h.Kind == HTTPHook || h.Kind == LoopHook && role != Proxy
	if h.IsKnown || !isOpen {
		return h
	}
	before := h.Duration
	if h.Duration = grace; h.Most > 0 {
		h.Duration = min(h.Most, grace)
	}
	if h.MayStop = false; h.Stops {
		h.StopsAt += max(0, h.Duration-before)
	}
	h.Kind = ScriptHook
	return h
}
