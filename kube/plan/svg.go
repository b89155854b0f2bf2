package plan

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// row is a request or a container in the picture.
type row struct {
	group, label, outcome string
	verdict               string // class of the outcome: good, poor (at a cost) or bad
	isOurs                bool   // emphasised
	events                []event
}

// event is a span of time, or a mark at its end.
type event struct {
	class    string        // of kinds
	from, to time.Duration // since the deletion
}

// kind is the look of an event: its class in the style sheet, its words in the legend and in tooltips, and the sign of
// a mark, around its place.
type kind struct{ class, words, sign string }

// kinds are all, in the order of the legend.
var kinds = []kind{
	{"answered", "request, answered", ""},
	{"lost", "request, lost", ""},
	{"needed", "needed", ""}, // a pod that serves the request
	{"idle", "idle", ""},     // a pod with nothing to do
	{"term", "stop signal", `<path class="term" d="M-5.5 5L0 -5.5L5.5 5Z"/>`},
	{"kill", "SIGKILL", `<path class="kill" d="M-5 -5L5 5M-5 5L5 -5"/>`},
	{"gone", "gone", `<rect class="gone" x="-1.5" y="-7" width="3" height="14"/>`},
}

func kindOf(class string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.class == class })]
}

// leastSpan is the width of what lasts no time, such as a refused request.
const leastSpan = 100 * time.Millisecond

// rows are the requests and their ends, then the containers.
func (p *Plan) rows() (all []row) {
	group := cut(p.Name, 50)
	for _, a := range p.Fates {
		verdict, e := "good", event{"answered", max(0, a.At), a.Fate.At}
		switch {
		case a.Result == termination.Unknown:
			verdict, e.class, e.to = "poor", "idle", max(e.to, e.from+leastSpan)
		case !a.IsServed:
			verdict, e.class = "bad", "lost"
			if e.to <= e.from {
				e.to = e.from + leastSpan
			}
		}
		label := terminal.Seconds(p.Options.Request) + " request " + a.arrival()
		all = append(all, row{group, label, cut(a.outcome(), 58), verdict, p.HasLastcall, []event{e}})
	}
	served := min(p.Options.Request, p.Course.Cut)
	for i, c := range p.Containers {
		m := p.Course.Containers[i]
		gone := max(m.Gone, p.Best.Containers[i].Gone)
		until := min(max(served, min(p.Course.Accepts, m.Gone)), m.Gone)
		verdict, end, events := "good", "gone", []event{}
		if until > 0 {
			events = append(events, event{"needed", 0, until})
		}
		if gone-until > leastSpan {
			verdict = "poor"
			events = append(events, event{"idle", until, gone})
		}
		if p.Best.Containers[i].Killed {
			end = "kill"
		}
		if m.Killed {
			verdict = "bad"
		}
		events = append(events, event{"term", m.Signal, m.Signal}, event{end, gone, gone})
		text := fmt.Sprintf("%s at %s, %s; gone at %s",
			c.StopSignal, terminal.Seconds(m.Signal), c.Reaction, terminal.Seconds(gone))
		label := cut(c.Name+": preStop "+c.Hook.String(), 55)
		all = append(all, row{group, label, cut(text, 58), verdict, p.HasLastcall, events})
	}
	return all
}

// WriteSVG draws plans over one clock as one picture. It is narrow, so that its text can be read on a phone, and
// follows the page's light or dark colours.
func WriteSVG(w io.Writer, plans []*Plan) error {
	var rows []row
	until := time.Second
	for _, p := range plans {
		rows, until = append(rows, p.rows()...), max(until, p.Grace)
	}
	_, err := w.Write(draw(rows, until))
	return err
}

// Sizes of the picture, in pixels. On a phone 390 pixels wide, text of 15 is shown at 11.
const (
	width       = 480
	margin      = 12
	top         = 44 // the title
	groupHeight = 28
	rowHeight   = 70
	axisHeight  = 24
	keyColumns  = 3
	keyHeight   = 22
)

const title = "The pod is deleted at 0 s"

const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d"` +
	` font-family="ui-sans-serif, system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="15"` +
	` role="img" aria-label="%[3]s">
<style>
.page{fill:#fff}.text{fill:#1f2328}.faint{fill:#59636e}.line{stroke:#d1d9e0}.ours{fill:#dafbe1}.edge{fill:#1a7f37}
.answered{fill:#1a7f37}.lost{fill:#cf222e}.needed{fill:#0969da}.idle{fill:#d4a72c}
.good{fill:#116329}.poor{fill:#7d4e00}.bad{fill:#a40e26}
.term{fill:#8250df}.kill{stroke:#cf222e;stroke-width:2.4;fill:none}.gone{fill:#1f2328}
@media (prefers-color-scheme: dark){
.page{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}.line{stroke:#3d444d}.ours{fill:#12261e}.edge{fill:#3fb950}
.answered{fill:#3fb950}.lost{fill:#f85149}.needed{fill:#79c0ff}.idle{fill:#d29922}
.good{fill:#56d364}.poor{fill:#e3b341}.bad{fill:#ff7b72}
.term{fill:#ab7df8}.kill{stroke:#f85149}.gone{fill:#f0f6fc}}
</style>
<rect class="page" width="%[1]d" height="%[2]d" rx="8"/>
<text class="text" x="%[4]d" y="28" font-size="17" font-weight="600">%[3]s</text>
`

// drawing is the picture under its head, in two layers.
type drawing struct {
	behind, front bytes.Buffer
	x             func(time.Duration) float64 // the place of a time
	shown         map[string]bool             // classes
}

// draw draws rows over a clock that ends no sooner than until.
func draw(rows []row, until time.Duration) []byte {
	for _, r := range rows {
		for _, e := range r.events {
			until = max(until, e.to)
		}
	}
	d := drawing{shown: map[string]bool{}, x: func(at time.Duration) float64 {
		return math.Round((2*margin+float64(width-4*margin)*float64(at)/float64(until))*10) / 10
	}}
	y := top
	for i, r := range rows {
		if r.group != "" && (i == 0 || rows[i-1].group != r.group) {
			d.text("faint", margin, y+19, ` font-weight="600"`, r.group)
			y += groupHeight
		}
		d.row(r, y)
		y += rowHeight
	}
	for at, tick := time.Duration(0), step(until); at <= until; at += tick {
		fmt.Fprintf(&d.behind, `<line class="line" x1="%[1]v" x2="%[1]v" y1="%d" y2="%d" stroke-dasharray="2 4"/>`+"\n",
			d.x(at), top, y)
		seconds := strconv.FormatFloat(at.Seconds(), 'f', -1, 64) + " s"
		d.text("faint", d.x(at), y+15, ` text-anchor="middle" font-size="13"`, seconds)
	}
	height := d.legend(y+axisHeight) + margin
	out := fmt.Appendf(nil, head, width, height, title, margin)
	return slices.Concat(out, d.behind.Bytes(), d.front.Bytes(), []byte("</svg>\n"))
}

// text writes text, which is another's: XML has no control characters.
func (d *drawing) text(class string, x any, y int, attributes, text string) {
	fmt.Fprintf(&d.front, `<text class="%s" x="%v" y="%d"%s>%s</text>`+"\n",
		class, x, y, attributes, html.EscapeString(terminal.Printable(text)))
}

func (d *drawing) row(r row, y int) {
	weight := ""
	if r.isOurs {
		weight = ` font-weight="600"`
		fmt.Fprintf(&d.behind, `<rect class="ours" x="%d" y="%d" width="%d" height="68" rx="4"/>`+"\n",
			margin, y, width-2*margin)
		fmt.Fprintf(&d.behind, `<rect class="edge" x="%d" y="%d" width="4" height="68" rx="2"/>`+"\n", margin, y)
	}
	d.text("text", 2*margin, y+18, weight, r.label)
	d.text(r.verdict, 2*margin, y+37, weight, r.outcome)
	for _, e := range r.events {
		switch k := kindOf(e.class); {
		case k.sign != "":
			d.sign(k, d.x(e.to), float64(y)+59.5)
		case e.class == "answered" || e.class == "lost": // requests are thick, and above the states of a pod
			d.bar(k, d.x(e.from), y+43, math.Max(1, d.x(e.to)-d.x(e.from)), 11)
		default:
			d.bar(k, d.x(e.from), y+57, math.Max(1, d.x(e.to)-d.x(e.from)), 5)
		}
	}
}

func (d *drawing) bar(k kind, x float64, y int, width float64, height int) {
	d.shown[k.class] = true
	fmt.Fprintf(&d.front, `<rect class="%s" x="%v" y="%d" width="%.5g" height="%d" rx="2">`+
		"<title>%s</title></rect>\n", k.class, x, y, width, height, k.words)
}

func (d *drawing) sign(k kind, x, y float64) {
	d.shown[k.class] = true
	fmt.Fprintf(&d.front, `<g transform="translate(%v %v)">%s<title>%s</title></g>`+"\n", x, y, k.sign, k.words)
}

// legend explains the kinds of the picture. It returns the end of the picture.
func (d *drawing) legend(y int) int {
	n := 0
	for _, k := range kinds {
		if !d.shown[k.class] {
			continue
		}
		x, line := margin+n%keyColumns*(width-2*margin)/keyColumns, y+keyHeight*(n/keyColumns)+16
		if k.sign != "" {
			d.sign(k, float64(x+8), float64(line-5))
		} else {
			d.bar(k, float64(x), line-9, 16, 9)
		}
		d.text("faint", x+24, line, ` font-size="13"`, k.words)
		n++
	}
	return y + keyHeight*((n+keyColumns-1)/keyColumns)
}

// step is the time between two ticks of a clock that ends at until: there are at most 8, at round times.
func step(until time.Duration) time.Duration {
	for _, step := range []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second,
		2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	} {
		if until/step <= 7 {
			return step
		}
	}
	return (until/8/time.Hour + 1) * time.Hour
}
