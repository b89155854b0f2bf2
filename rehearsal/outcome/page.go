package outcome

import (
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"io"
	"math"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// Sizes of a chart, in the units of its view box.
const (
	chartWidth = 480.0
	inset      = 14.0
	laneHeight = 8
	axisHeight = 24
	maxLanes   = 120 // connections without a loss beyond it are not drawn
)

type pageView struct {
	Title, Verdict, App, Grace, PreStop, Propagation string

	OK     bool
	Pods   bool // of a cluster
	Notes  []string
	Charts []chart
}

type chart struct {
	ID, Strategy, Words, Gone, EndedBy, From, To string

	Requests, Lost, Height int
	Bands                  []shape
	Pods                   []shape
	Bars                   []shape
	Ticks                  []chartTick
	Losses                 []Loss
	Tables                 []podTable
}

type shape struct {
	Class, Label string
	X, W         float64
	Y, H         int
}

type chartTick struct {
	X        float64
	Y, TextY int
	Text     string
}

// WriteHTML writes the result as one page without any other file: the connections and requests of each strategy's last run
// over the phases of the pod's end.
func (r *Result) WriteHTML(w io.Writer) error {
	first := r.Rows[0]
	v := pageView{
		Title: "Rehearsal of the app", OK: r.OK, Pods: r.isCluster(), App: r.App, Grace: console.Round(ms(r.GraceMS)), PreStop: r.PreStop, Notes: r.Notes,
		Verdict:     fmt.Sprintf("%s lost %d of %d requests.", first.Strategy, first.Lost, first.Requests),
		Propagation: console.Round(ms(r.PropagationMS[0])) + " to " + console.Round(ms(r.PropagationMS[1])),
	}
	if r.Workload != "" {
		v.Title = "Rehearsal of " + r.Workload
	}
	from, to := r.span()
	for i, row := range r.Rows {
		v.Charts = append(v.Charts, r.chart(i, row, from, to))
	}
	if err := page.Execute(w, v); err != nil {
		return fmt.Errorf("write the page of the rehearsal: %w", err)
	}
	return nil
}

// span is the common clock of all charts, milliseconds.
func (r *Result) span() (from, to int64) {
	for _, row := range r.Rows {
		last := row.Runs[len(row.Runs)-1]
		to = max(to, last.GoneMS)
		for _, s := range last.Sendings {
			from, to = min(from, s.FromMS), max(to, s.ToMS)
		}
	}
	return from, max(to, from+1)
}

func (r *Result) chart(index int, row Row, from, to int64) chart {
	run := row.Runs[len(row.Runs)-1]
	x := func(at int64) float64 {
		at = min(max(at, from), to)
		return math.Round((inset+(chartWidth-2*inset)*float64(at-from)/float64(to-from))*10) / 10
	}
	c := chart{
		ID: fmt.Sprintf("strategy-%d", index), Strategy: row.Strategy, Words: row.Words, Requests: row.Requests, Lost: row.Lost,
		Gone: console.Seconds(ms(row.GoneMS())), EndedBy: row.EndedBy(), Losses: row.Losses, Tables: podTables(row),
		From: console.Seconds(ms(from)), To: console.Seconds(ms(to)),
	}
	lanes := lanes(run.Sendings)
	top := c.drawPods(run.Pods, x, to)
	bottom := top + max(1, min(len(lanes), maxLanes))*laneHeight
	for _, s := range run.Sendings {
		lane := lanes[laneOf(s)]
		if lane >= maxLanes {
			continue
		}
		bar := shape{Class: "ok", X: x(s.FromMS), W: math.Max(1.5, x(s.ToMS)-x(s.FromMS)), Y: top + lane*laneHeight}
		if s.Reason != "" {
			bar.Class = "lost"
			bar.Label = fmt.Sprintf("%s, client %d: %s %s, at %s", r.Requests[s.Request].Request, s.Client+1, s.Reason, s.Phase, console.Seconds(ms(s.ToMS)))
		}
		if s.OnNew {
			bar.Class += " new"
		}
		c.Bars = append(c.Bars, bar)
	}
	term := run.TermMS
	if term < 0 {
		term = run.GoneMS
	}
	bands := []struct {
		class    string
		from, to int64
	}{{"hook", 0, term}, {"term", term, run.GoneMS}, {"gone", run.GoneMS, to}}
	if len(run.Pods) > 0 {
		bands = nil // each pod has its own
	}
	for _, b := range bands {
		if b.to > b.from {
			c.Bands = append(c.Bands, shape{Class: b.class, X: x(b.from), W: x(b.to) - x(b.from), H: bottom})
		}
	}
	step := max(1, (to-from)/6/1000+1) * 1000
	for at := from / step * step; at <= to; at += step {
		c.Ticks = append(c.Ticks, chartTick{x(at), bottom, bottom + axisHeight - 8, fmt.Sprintf("%g s", (time.Duration(at) * time.Millisecond).Seconds())})
	}
	c.Height = bottom + axisHeight
	return c
}

// drawPods draws a cluster's pods that ended, one below the other, and returns the height.
func (c *chart) drawPods(pods []Pod, x func(int64) float64, to int64) (height int) {
	for _, p := range pods {
		if p.DeletedMS < 0 || height >= maxLanes*laneHeight {
			continue
		}
		term, ended, gone := p.TermMS, p.EndedMS, p.GoneMS
		if gone < 0 {
			gone = to
		}
		if ended < 0 {
			ended = gone
		}
		if term < 0 {
			term = p.DeletedMS
		}
		label := fmt.Sprintf("%s: deleted at %s, ended at %s", p.Name, console.Seconds(ms(p.DeletedMS)), console.Seconds(ms(ended)))
		if p.EndedBy != "" {
			label += " by " + p.EndedBy
		}
		for _, part := range []struct {
			class    string
			from, to int64
		}{{"hook", p.DeletedMS, term}, {"term", term, ended}, {"gone", ended, gone}} {
			if part.to > part.from {
				c.Pods = append(c.Pods, shape{Class: part.class, Label: label, X: x(part.from), W: math.Max(1.5, x(part.to)-x(part.from)), Y: height, H: laneHeight - 1})
				label = ""
			}
		}
		height += laneHeight
	}
	return height
}

type lane struct {
	client int
	conn   int64 // 0: a client's refused requests share a lane
}

func laneOf(s Sending) lane { return lane{s.Client, s.Conn} }

// lanes numbers the connections: those with a loss first.
func lanes(all []Sending) map[lane]int {
	out := map[lane]int{}
	for _, lost := range []bool{true, false} {
		for _, s := range all {
			if _, found := out[laneOf(s)]; !found && (s.Reason != "") == lost {
				out[laneOf(s)] = len(out)
			}
		}
	}
	return out
}
