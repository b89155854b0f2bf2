// Package timeline draws events and times: rows of spans and marks over one clock, as an SVG picture. It is narrow,
// so that its text can be read on a phone, and follows the page's light or dark colours.
package timeline

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"text/template"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// Chart is one picture.
type Chart struct {
	Title string
	Rows  []Row
	Key   []Entry // the legend, below the rows: of their contents
	Until time.Duration
}

// Entry explains a kind of span or mark.
type Entry struct {
	Kind Kind
	Text string
}

// Row is one scenario.
type Row struct {
	Group   string // a title above the first row of a group
	Label   string // its name, in words
	Outcome string // its meaning, in words
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
	Text     string        // its tooltip
}

// Mark is an event.
type Mark struct {
	Kind Kind
	At   time.Duration
	Text string // its tooltip
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
	Term Kind = "term" // SIGTERM to the app
	Kill Kind = "kill" // SIGKILL
	Gone Kind = "gone" // the pod has ended
)

// IsMark reports whether it is a kind of marks.
func (k Kind) IsMark() bool { return k == Term || k == Kill || k == Gone }

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

type view struct {
	Title          string
	Width, Height  int
	Top, AxisAt    int
	Ticks          []tick
	Groups         []group
	Rows           []row
	Legend         []legend
	Margin, Inside int
}

type tick struct {
	X    float64
	Text string
}

type group struct {
	Text string
	Y    int
}

type row struct {
	Row
	Y     int
	Bars  []bar
	Signs []sign
}

type bar struct {
	Kind       Kind
	X, W, Y, H float64
	Text       string
}

type sign struct {
	Kind Kind
	X, Y float64
	Text string
}

type legend struct {
	Entry
	X, Y int
}

// SVG draws the chart.
func (c Chart) SVG() ([]byte, error) {
	until := c.end()
	if until <= 0 {
		return nil, fmt.Errorf("draw the timeline %q: it has no length", c.Title)
	}
	x := func(at time.Duration) float64 {
		return math.Round((2*margin+float64(width-4*margin)*float64(at)/float64(until))*10) / 10
	}
	v := view{Title: c.Title, Width: width, Margin: margin, Inside: width - 2*margin, Top: top}
	y := top
	for i, r := range c.Rows {
		if r.Group != "" && (i == 0 || c.Rows[i-1].Group != r.Group) {
			v.Groups = append(v.Groups, group{r.Group, y + 19})
			y += groupHeight
		}
		v.Rows = append(v.Rows, r.draw(y, x))
		y += rowHeight
	}
	v.AxisAt = y
	for at, step := time.Duration(0), Step(until); at <= until; at += step {
		v.Ticks = append(v.Ticks, tick{x(at), strconv.FormatFloat(at.Seconds(), 'f', -1, 64) + " s"})
	}
	y += axisHeight
	key := c.key()
	for i, e := range key {
		column, line := i%keyColumns, i/keyColumns
		v.Legend = append(v.Legend, legend{e, margin + column*(width-2*margin)/keyColumns, y + keyHeight*line + 16})
	}
	v.Height = y + keyHeight*((len(key)+keyColumns-1)/keyColumns) + margin
	var out bytes.Buffer
	if err := picture.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("draw the timeline %q: %w", c.Title, err)
	}
	return out.Bytes(), nil
}

// key is the legend of the picture.
func (c Chart) key() []Entry {
	shown := map[Kind]bool{}
	for _, r := range c.Rows {
		for _, s := range r.Spans {
			shown[s.Kind] = true
		}
		for _, m := range r.Marks {
			shown[m.Kind] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(c.Key), func(e Entry) bool { return !shown[e.Kind] })
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

func (r Row) draw(y int, x func(time.Duration) float64) row {
	out := row{Row: r, Y: y}
	for _, s := range r.Spans {
		b := bar{Kind: s.Kind, X: x(s.From), W: math.Max(1, x(s.To)-x(s.From)), Y: float64(y) + 57, H: 5, Text: s.Text}
		if s.Kind == Answered || s.Kind == Lost {
			b.Y, b.H = float64(y)+43, 11
		}
		out.Bars = append(out.Bars, b)
	}
	for _, m := range r.Marks {
		out.Signs = append(out.Signs, sign{m.Kind, x(m.At), float64(y) + 59.5, m.Text})
	}
	return out
}

// Step is the time between two ticks of a clock that ends at until: there are at most 8, at round times.
func Step(until time.Duration) time.Duration {
	for _, step := range []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
		10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	} {
		if until/step <= 7 {
			return step
		}
	}
	return (until/8/time.Hour + 1) * time.Hour
}

var picture = template.Must(template.New("picture").Funcs(template.FuncMap{
	"add": func(a, b int) int { return a + b },
	// XML has no control characters.
	"html": func(text any) string { return template.HTMLEscapeString(terminal.Printable(fmt.Sprint(text))) },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}"
	viewBox="0 0 {{.Width}} {{.Height}}" role="img" aria-label="{{html .Title}}" font-size="15"
	font-family="ui-sans-serif, system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">
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
<rect class="page" width="{{.Width}}" height="{{.Height}}" rx="8"/>
<text class="text" x="{{.Margin}}" y="28" font-size="17" font-weight="600">{{html .Title}}</text>
{{- range .Rows}}{{if .IsOurs}}
<rect class="ours" x="{{$.Margin}}" y="{{.Y}}" width="{{$.Inside}}" height="68" rx="4"/>
<rect class="edge" x="{{$.Margin}}" y="{{.Y}}" width="4" height="68" rx="2"/>{{end}}{{end}}
{{- range .Ticks}}
<line class="line" x1="{{.X}}" x2="{{.X}}" y1="{{$.Top}}" y2="{{$.AxisAt}}" stroke-dasharray="2 4"/>
<text class="faint" x="{{.X}}" y="{{add $.AxisAt 15}}" text-anchor="middle" font-size="13">{{html .Text}}</text>
{{- end}}
{{- range .Groups}}
<text class="faint" x="{{$.Margin}}" y="{{.Y}}" font-weight="600">{{html .Text}}</text>
{{- end}}
{{- range .Rows}}
<text class="text" x="{{add $.Margin $.Margin}}" y="{{add .Y 18}}"{{if .IsOurs}} font-weight="600"{{end -}}
>{{html .Label}}</text>
<text class="{{.Verdict}}" x="{{add $.Margin $.Margin}}" y="{{add .Y 37}}"{{if .IsOurs}} font-weight="600"{{end -}}
>{{html .Outcome}}</text>
{{- range .Bars}}
<rect class="{{.Kind}}" x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}" rx="2"><title>{{html .Text}}</title></rect>
{{- end}}
{{- range .Signs}}
<g transform="translate({{.X}} {{.Y}})">{{template "sign" .Kind}}<title>{{html .Text}}</title></g>
{{- end}}
{{- end}}
{{- range .Legend}}
{{if .Kind.IsMark -}}
<g transform="translate({{add .X 8}} {{add .Y -5}})">{{template "sign" .Kind}}</g>
{{- else -}}
<rect class="{{.Kind}}" x="{{.X}}" y="{{add .Y -9}}" width="16" height="9" rx="2"/>
{{- end}}
<text class="faint" x="{{add .X 24}}" y="{{.Y}}" font-size="13">{{html .Text}}</text>
{{- end}}
</svg>
{{define "sign"}}{{if eq . "kill" -}}
<path class="kill" d="M-5 -5L5 5M-5 5L5 -5"/>
{{- else if eq . "term" -}}
<path class="term" d="M-5.5 5L0 -5.5L5.5 5Z"/>
{{- else -}}
<rect class="gone" x="-1.5" y="-7" width="3" height="14"/>
{{- end}}{{end}}`))
