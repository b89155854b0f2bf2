package plan

import (
	"encoding/json"
	"io"
	"time"

	"github.com/lastcall-dev/lastcall/internal/printable"
)

// WriteJSON prints plans for programs: an array, all times in milliseconds since the deletion. docs/plan.md lists the
// fields.
func WriteJSON(w io.Writer, plans []*Plan) error {
	out := make([]object, 0, len(plans))
	for _, p := range plans {
		out = append(out, p.json())
	}
	e := json.NewEncoder(printable.JSONWriter(w))
	e.SetIndent("", "  ")
	return e.Encode(out)
}

type object map[string]any

func (p *Plan) json() object {
	ms := time.Duration.Milliseconds
	containers, phases, requests := []object{}, []object{}, []object{}
	for i, c := range p.Containers {
		m := p.Course.Containers[i]
		settings := []object{}
		for _, s := range c.Settings {
			settings = append(settings, object{"name": s.Name, "value": s.Value, "source": s.Source})
		}
		containers = append(containers, object{
			"name": c.Name, "role": c.Role, "native": c.Native, "assumed": c.Assumed,
			"pre_stop": c.Hook.Kind, "pre_stop_text": c.Hook.Text,
			"stop_signal": c.StopSignal.Value, "reaction": c.Reaction, "settings": settings,
			"signal_ms": ms(m.Signal), "kill_ms": ms(m.Kill), "gone_ms": ms(m.Gone),
			"signal_latest_ms": ms(p.Best.Containers[i].Signal), "gone_latest_ms": ms(max(m.Gone, p.Best.Containers[i].Gone)),
		})
	}
	for _, f := range p.Phases {
		phases = append(phases, object{
			"from_ms": ms(f.From), "to_ms": ms(f.To), "why": f.Why,
			"new_connections": f.New, "in_flight": f.InFlight, "waits_for_nothing": f.IsIdle,
		})
	}
	for _, a := range p.Fates {
		requests = append(requests, object{
			"arrives_ms": ms(a.At), "served": a.IsServed, "result": a.Result, "at_ms": ms(a.Fate.From),
			"at_latest_ms": ms(a.Fate.At), "why": a.Why,
		})
	}
	return object{
		"name": p.Name, "mesh": p.Mesh, "lastcall": p.HasLastcall, "grace_ms": ms(p.Grace), "last_call_ms": ms(p.LastCall),
		"request_ms": ms(p.Options.Request), "longest_request_served_ms": ms(p.Longest),
		"idle_pod_accepts_ms": ms(p.Idle.Accepts), "idle_pod_gone_ms": ms(p.Idle.Gone),
		"gone_ms": ms(p.Course.Gone), "gone_latest_ms": ms(p.gone()), "killed": p.Course.Killed,
		"longest_request_hoped_ms": ms(p.Hoped), "containers": containers,
		"phases": phases, "requests": requests, "notes": append([]string{}, p.Notes...),
	}
}
