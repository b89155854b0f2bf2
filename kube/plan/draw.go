package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/rehearsal/timeline"
)

// Chart draws plans over one clock: for each, the requests and their ends, then its containers.
func Chart(plans []*Plan) timeline.Chart {
	c := timeline.Chart{Title: "The pod is deleted at 0 s"}
	for _, p := range plans {
		c.Rows = append(c.Rows, p.rows()...)
		c.Until = max(c.Until, p.Grace)
	}
	return c
}

func (p *Plan) rows() []timeline.Row {
	group := cut(p.Name, 50)
	var out []timeline.Row
	for _, a := range p.Fates {
		r := timeline.Row{
			Group: group, IsOurs: p.HasLastcall, Verdict: timeline.Good,
			Label: terminal.Seconds(p.Options.Request) + " request " + a.arrival(), Outcome: cut(a.outcome(), 58),
		}
		span := timeline.Span{Kind: timeline.Answered, From: max(0, a.At), To: a.Fate.At}
		switch {
		case a.Result == termination.Unknown:
			r.Verdict, span.Kind, span.To = timeline.Poor, timeline.Idle, max(span.To, span.From+100*time.Millisecond)
		case !a.IsServed:
			r.Verdict, span.Kind = timeline.Bad, timeline.Lost
			if span.To <= span.From { // refused: it lasts no time
				span.To = span.From + 100*time.Millisecond
			}
		}
		r.Spans = []timeline.Span{span}
		out = append(out, r)
	}
	served := min(p.Options.Request, p.Course.Cut)
	for i, c := range p.Containers {
		m := p.Course.Containers[i]
		gone := max(m.Gone, p.Best.Containers[i].Gone)
		until := min(max(served, min(p.Course.Accepts, m.Gone)), m.Gone)
		r := timeline.Row{Group: group, IsOurs: p.HasLastcall, Verdict: timeline.Good,
			Label: cut(c.Name+": preStop "+c.Hook.String(), 55)}
		text := fmt.Sprintf("%s at %s, %s; gone at %s",
			c.StopSignal.Value, terminal.Seconds(m.Signal), c.Reaction, terminal.Seconds(gone))
		r.Outcome = cut(text, 58)
		if until > 0 {
			r.Spans = append(r.Spans, timeline.Span{Kind: timeline.Needed, From: 0, To: until})
		}
		if gone-until > 100*time.Millisecond {
			r.Verdict = timeline.Poor
			r.Spans = append(r.Spans, timeline.Span{Kind: timeline.Idle, From: until, To: gone})
		}
		end := timeline.Gone
		if p.Best.Containers[i].Killed {
			end = timeline.Kill
		}
		if m.Killed {
			r.Verdict = timeline.Bad
		}
		r.Marks = []timeline.Mark{{Kind: timeline.Term, At: m.Signal}, {Kind: end, At: gone}}
		out = append(out, r)
	}
	return out
}

// WriteSVG draws plans as one picture.
func WriteSVG(w io.Writer, plans []*Plan) error {
	svg, err := Chart(plans).SVG()
	if err != nil {
		return err
	}
	_, err = w.Write(svg)
	return err
}

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
