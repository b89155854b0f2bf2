// Package timeline draws what happened when: rows of spans and marks over one clock, as an SVG picture. It is narrow,
// so that its text can be read on a phone, and follows the page's light or dark colours.
package timeline

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// Chart is one picture.
type Chart struct {
	Title string
	Rows  []Row
	Until time.Duration
}

// Row is one scenario.
type Row struct {
	Group   string // a title above the first row of a group
	Label   string // what it is, in words
	Outcome string // what it means, in words
	Verdict Verdict
	IsOurs  bool // emphasised
	Spans   []Span
	Marks   []Mark
}

// Verdict colours an outcome.
type Verdict string

// The verdicts.
const (
	Good Verdict = "good"
	Poor Verdict = "poor" // the request is answered, at a cost
	Bad  Verdict = "bad"
)

// Span is something with a duration.
type Span struct {
	Kind     Kind
	From, To time.Duration // since the clock's zero
}

// Mark is an event.
type Mark struct {
	Kind Kind
	At   time.Duration
}

// Kind selects the look; it is a class of the picture's style sheet.
type Kind string

// The kinds of spans: requests, which are thick, and states of a pod, which are below them.
const (
	Answered Kind = "answered" // a request with a complete response
	Lost     Kind = "lost"     // a request without one
	Needed   Kind = "needed"   // a pod that serves the request
	Idle     Kind = "idle"     // a pod with nothing to do
)

// The kinds of marks.
const (
	Term Kind = "term" // the stop signal of the app
	Kill Kind = "kill" // SIGKILL
	Gone Kind = "gone" // the pod has ended
)

// kinds are all, in the order of the legend, and words the texts of the legend and of tooltips.
var (
	kinds = []Kind{Answered, Lost, Needed, Idle, Term, Kill, Gone}
	words = map[Kind]string{
		Answered: "request, answered", Lost: "request, lost", Needed: "needed", Idle: "idle",
		Term: "stop signal", Kill: "SIGKILL", Gone: "gone",
	}
)

// signs are the marks, around their place.
var signs = map[Kind]string{
	Term: `<path class="term" d="M-5.5 5L0 -5.5L5.5 5Z"/>`,
	Kill: `<path class="kill" d="M-5 -5L5 5M-5 5L5 -5"/>`,
	Gone: `<rect class="gone" x="-1.5" y="-7" width="3" height="14"/>`,
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
	shown         map[Kind]bool
}

// SVG draws the chart.
func (c Chart) SVG() ([]byte, error) {
	until := c.end()
	if until <= 0 {
		return nil, fmt.Errorf("draw the timeline %q: it has no length", c.Title)
	}
	d := drawing{shown: map[Kind]bool{}, x: func(at time.Duration) float64 {
		return math.Round((2*margin+float64(width-4*margin)*float64(at)/float64(until))*10) / 10
	}}
	y := top
	for i, r := range c.Rows {
		if r.Group != "" && (i == 0 || c.Rows[i-1].Group != r.Group) {
			d.text("faint", margin, y+19, ` font-weight="600"`, r.Group)
			y += groupHeight
		}
		d.row(r, y)
		y += rowHeight
	}
	for at, step := time.Duration(0), Step(until); at <= until; at += step {
		fmt.Fprintf(&d.behind, `<line class="line" x1="%[1]v" x2="%[1]v" y1="%d" y2="%d" stroke-dasharray="2 4"/>`+"\n",
			d.x(at), top, y)
		seconds := strconv.FormatFloat(at.Seconds(), 'f', -1, 64) + " s"
		d.text("faint", d.x(at), y+15, ` text-anchor="middle" font-size="13"`, seconds)
	}
	height := d.legend(y+axisHeight) + margin
	var out bytes.Buffer
	fmt.Fprintf(&out, head, width, height, escaped(c.Title), margin)
	for _, part := range [][]byte{d.behind.Bytes(), d.front.Bytes(), []byte("</svg>\n")} {
		out.Write(part)
	}
	return out.Bytes(), nil
}

// end is the end of the clock.
func (c Chart) end() time.Duration {
	until := c.Until
	for _, r := range c.Rows {
		for _, s := range r.Spans {
			until = max(until, s.To)
		}
		for _, m := range r.Marks {
			until = max(until, m.At)
		}
	}
	return until
}

// escaped is a text in XML, which has no control characters.
func escaped(text string) string { return html.EscapeString(terminal.Printable(text)) }

func (d *drawing) text(class string, x any, y int, attributes, text string) {
	fmt.Fprintf(&d.front, `<text class="%s" x="%v" y="%d"%s>%s</text>`+"\n", class, x, y, attributes, escaped(text))
}

func (d *drawing) row(r Row, y int) {
	weight := ""
	if r.IsOurs {
		weight = ` font-weight="600"`
		fmt.Fprintf(&d.behind, `<rect class="ours" x="%d" y="%d" width="%d" height="68" rx="4"/>`+"\n",
			margin, y, width-2*margin)
		fmt.Fprintf(&d.behind, `<rect class="edge" x="%d" y="%d" width="4" height="68" rx="2"/>`+"\n", margin, y)
	}
	d.text("text", 2*margin, y+18, weight, r.Label)
	d.text(string(r.Verdict), 2*margin, y+37, weight, r.Outcome)
	for _, s := range r.Spans {
		at, height := y+57, 5
		if s.Kind == Answered || s.Kind == Lost {
			at, height = y+43, 11
		}
		d.bar(s.Kind, d.x(s.From), at, math.Max(1, d.x(s.To)-d.x(s.From)), height)
	}
	for _, m := range r.Marks {
		d.sign(m.Kind, d.x(m.At), float64(y)+59.5)
	}
}

func (d *drawing) bar(k Kind, x float64, y int, width float64, height int) {
	d.shown[k] = true
	fmt.Fprintf(&d.front, `<rect class="%s" x="%v" y="%d" width="%.5g" height="%d" rx="2"><title>%s</title></rect>`+"\n",
		k, x, y, width, height, words[k])
}

func (d *drawing) sign(k Kind, x, y float64) {
	d.shown[k] = true
	fmt.Fprintf(&d.front, `<g transform="translate(%v %v)">%s<title>%s</title></g>`+"\n", x, y, signs[k], words[k])
}

// legend explains the kinds of the picture. It returns the end of the picture.
func (d *drawing) legend(y int) int {
	n := 0
	for _, k := range kinds {
		if !d.shown[k] {
			continue
		}
		x, line := margin+n%keyColumns*(width-2*margin)/keyColumns, y+keyHeight*(n/keyColumns)+16
		if _, isMark := signs[k]; isMark {
			d.sign(k, float64(x+8), float64(line-5))
		} else {
			d.bar(k, float64(x), line-9, 16, 9)
		}
		d.text("faint", x+24, line, ` font-size="13"`, words[k])
		n++
	}
	return y + keyHeight*((n+keyColumns-1)/keyColumns)
}

// Step is the time between two ticks of a clock that ends at until: there are at most 8, at round times.
func Step(until time.Duration) time.Duration {
	for _, step := range []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second,
		2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
		5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	} {
		if until/step <= 7 {
			return step
		}
	}
	return (until/8/time.Hour + 1) * time.Hour
}
