package plan

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/timeline"
)

// Chart draws plans over one clock: for each, the requests and what becomes of them, then its containers.
func Chart(plans []*Plan) timeline.Chart {
	c := timeline.Chart{
		Title: "The pod is deleted at 0 s",
		Key: []timeline.Entry{
			{Kind: timeline.Answered, Text: "request, answered"},
			{Kind: timeline.Lost, Text: "request, lost"},
			{Kind: timeline.Needed, Text: "needed for requests"},
			{Kind: timeline.Idle, Text: "waits for nothing"},
			{Kind: timeline.Term, Text: "stop signal"},
			{Kind: timeline.Kill, Text: "SIGKILL"},
			{Kind: timeline.Gone, Text: "gone"},
		},
	}
	for _, p := range plans {
		c.Rows = append(c.Rows, p.rows()...)
		c.Until = max(c.Until, p.GracePeriod())
	}
	return c
}

func (p *Plan) rows() []timeline.Row {
	group := cut(p.Name, 50)
	if p.Way != AsIs {
		group = cut(p.Name+", "+p.Way.Title(), 50)
	}
	var out []timeline.Row
	for _, a := range p.Fates {
		r := timeline.Row{
			Group: group, IsOurs: p.Lastcall, Verdict: timeline.Good,
			Label: seconds(p.Options.Request) + " request " + a.arrival(), Outcome: cut(a.outcome(), 58),
		}
		span := timeline.Span{Kind: timeline.Answered, From: max(0, a.At), To: a.Fate.At, Text: "the request"}
		if !a.IsServed {
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
		until := min(max(served, min(p.Course.Accepts, m.Gone)), m.Gone)
		r := timeline.Row{Group: group, IsOurs: p.Lastcall, Verdict: timeline.Good, Label: cut(c.Name+": preStop "+c.PreStop.String(), 55)}
		r.Outcome = cut(fmt.Sprintf("%s at %s, %s; gone at %s", c.StopSignal.Value, seconds(m.Signal), c.Reaction, seconds(m.Gone)), 58)
		if until > 0 {
			r.Spans = append(r.Spans, timeline.Span{Kind: timeline.Needed, From: 0, To: until, Text: c.Name + ", needed"})
		}
		if m.Gone-until > 100*time.Millisecond {
			r.Verdict = timeline.Poor
			r.Spans = append(r.Spans, timeline.Span{Kind: timeline.Idle, From: until, To: m.Gone, Text: c.Name + ", waits for nothing"})
		}
		end := timeline.Gone
		if m.Killed {
			end, r.Verdict = timeline.Kill, timeline.Bad
		}
		r.Marks = []timeline.Mark{{Kind: timeline.Term, At: m.Signal, Text: c.StopSignal.Value}, {Kind: end, At: m.Gone, Text: "gone"}}
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

// WriteHTML writes plans as one page, which needs no other file.
func WriteHTML(w io.Writer, plans []*Plan) error {
	type section struct {
		*Plan
		Heading string
		Picture template.HTML
	}
	var all []section
	for _, p := range plans {
		svg, err := Chart([]*Plan{p}).SVG()
		if err != nil {
			return err
		}
		heading := p.Name
		if p.Way != AsIs {
			heading += ", " + p.Way.Title()
		}
		all = append(all, section{p, heading, template.HTML(svg)}) // timeline escapes all texts
	}
	var b bytes.Buffer
	if err := page.Execute(&b, all); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"seconds": seconds, "arrival": Arrival.arrival, "outcome": Arrival.outcome, "summary": (*Plan).summary, "ending": (*Plan).ending,
}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>How the pods end</title>
<style>
:root{color-scheme:light dark;--text:#1f2328;--faint:#59636e;--page:#fff;--line:#d1d9e0;--good:#116329;--bad:#a40e26}
@media (prefers-color-scheme:dark){:root{--text:#f0f6fc;--faint:#9198a1;--page:#0d1117;--line:#3d444d;--good:#56d364;--bad:#ff7b72}}
body{font:16px/1.5 ui-sans-serif,system-ui,sans-serif;color:var(--text);background:var(--page);max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;overflow-wrap:anywhere}
svg{max-width:100%;height:auto}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0}table:has(th:nth-child(4)){min-width:36rem}caption{text-align:left;font-weight:600;padding:.3rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;border-top:1px solid var(--line)}
.good{color:var(--good)}.bad{color:var(--bad)}.faint{color:var(--faint)}
</style></head><body><main>
<h1>How the pods end</h1>
{{range .}}<section>
<h2>{{.Heading}}</h2>
<p>{{summary .Plan}}.</p>
{{.Picture}}
<ul>{{range .Promises}}<li>{{.}}</li>{{end}}</ul>
<div class="wide" tabindex="0" role="region" aria-label="Requests of {{.Heading}}"><table><caption>A request of {{seconds .Options.Request}}</caption>
<thead><tr><th scope="col">that</th><th scope="col">gets</th></tr></thead><tbody>
{{range .Fates}}<tr><td>{{arrival .}}</td><td class="{{if .IsServed}}good{{else}}bad{{end}}">{{outcome .}}</td></tr>
{{end}}</tbody></table></div>
<div class="wide" tabindex="0" role="region" aria-label="Phases of {{.Heading}}"><table><caption>Phases</caption>
<thead><tr><th scope="col">from</th><th scope="col">what happens</th><th scope="col">new connections</th><th scope="col">in flight</th></tr></thead><tbody>
{{range .Phases}}<tr><td>{{seconds .From}}</td><td>{{.Why}}</td><td>{{.New}}</td><td>{{.InFlight}}{{if .IsIdle}}; nothing waits for the pod{{end}}</td></tr>
{{end}}<tr><td>{{seconds .Course.Gone}}</td><td>{{ending .Plan}}</td><td></td><td></td></tr></tbody></table></div>
<div class="wide" tabindex="0" role="region" aria-label="Settings of {{.Heading}}"><table><caption>Settings and their sources</caption>
<thead><tr><th scope="col">container</th><th scope="col">setting</th><th scope="col">value</th><th scope="col">source</th></tr></thead><tbody>
<tr><td></td><td>{{.Grace.Name}}</td><td>{{.Grace.Value}}</td><td>{{.Grace.Source}}</td></tr>
{{range .Containers}}{{$name := .Name}}<tr><td>{{.Name}}</td><td>preStop</td><td>{{.PreStop}}</td><td>{{if .Assumed}}its injector{{else}}manifest{{end}}</td></tr>
{{range .Settings}}<tr><td>{{$name}}</td><td>{{.Name}}</td><td>{{.Value}}</td><td>{{.Source}}</td></tr>
{{end}}{{end}}</tbody></table></div>
{{range .Notes}}<p class="faint">Note: {{.}}.</p>{{end}}
</section>
{{end}}</main></body></html>
`))
