package termination

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
)

// Best is the pod in which each thing that is unknown is as good for clients as it can be: between the courses of the
// two lies what will happen.
func (t *Termination) Best() *course.Pod {
	out := t.Pod.Stopped()
	for i := range out.Containers {
		k := &out.Containers[i]
		switch k.Reaction {
		case course.Unsure:
			k.Reaction = course.Ignores
		case course.ClosesPort:
			k.Reaction = course.Finishes
		}
		k.Hook = best(k.Hook, out.Grace, k.Role)
		if own := k.Hook.Own; own != nil {
			with := best(*own, out.Grace, course.App)
			k.Hook.Own = &with
		}
	}
	return out
}

// best is a hook that takes as long as it can.
func best(h course.Hook, grace time.Duration, role course.Role) course.Hook {
	if h.Stop == course.Unsure || h.Stop == course.ClosesPort {
		h.Stop = "" // Stopped has made it the reaction
	}
	isOpen := h.Kind == course.ScriptHook || h.Kind == course.HTTPHook || h.Kind == course.LoopHook && role != course.Proxy
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
	h.Kind = course.ScriptHook
	return h
}
