package plan

import (
	"fmt"
	"io"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/plan/timeline"
	"github.com/lastcall-dev/lastcall/kube/termination"
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
