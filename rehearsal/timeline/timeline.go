// Package timeline draws what happened when: rows of spans and marks over one
// clock, as an SVG picture that reads on light and dark pages.
package timeline

import (
	"bytes"
	"fmt"
	"math"
	"text/template"
	"time"
)

// Chart is one picture.
type Chart struct {
	Title string
	Rows  []Row
	Key   []Entry // what the kinds mean, below the picture
	Until time.Duration
}

// Entry explains a kind of span or mark.
type Entry struct {
	Kind Kind
	Text string
}

// Row is one story.
type Row struct {
	Label  string // what it is
	Result string // how it came out, at the right
	Good   bool
	Spans  []Span
	Marks  []Mark
}

// Span is something that lasted.
type Span struct {
	Kind     Kind
	From, To time.Duration // since the clock's zero
	Text     string        // said when pointed at
}

// Mark is something that happened at one moment.
type Mark struct {
	Kind Kind
	At   time.Duration
	Text string
}

// Kind chooses the look; it is a class of the picture's style sheet.
type Kind string

// The kinds of spans: a request, which is thick, and the phases of a pod, which
// lie below it.
const (
	Answered Kind = "answered" // a request that got its answer
	Lost     Kind = "lost"     // a request that did not
	Draining Kind = "draining"
	Waiting  Kind = "waiting"
	Idle     Kind = "idle" // a pod that stays for nothing
	LastCall Kind = "lastcall"
)

// The kinds of marks.
const (
	Term Kind = "term" // SIGTERM to the app
	Kill Kind = "kill" // SIGKILL
	Gone Kind = "gone" // the pod has ended
)

// Measures of the picture, pixels.
const (
	width     = 960
	labelsTo  = 300
	resultsAt = 760
	top       = 56
	rowHeight = 34
	keyHeight = 44
)

type view struct {
	Chart
	Width, Height, Bottom int
	LabelsTo, ResultsAt   int
	Ticks                 []tick
	Stories               []story
	Legend                []legend
}

type tick struct {
	X    float64
	Text string
}

type story struct {
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
	X       int
	IsMark  bool
	TextPos int
}

// SVG draws the chart.
func (c Chart) SVG() ([]byte, error) {
	until := c.Until
	for _, r := range c.Rows {
		for _, s := range r.Spans {
			until = max(until, s.To)
		}
		for _, m := range r.Marks {
			until = max(until, m.At)
		}
	}
	if until <= 0 {
		return nil, fmt.Errorf("draw the timeline %q: it has no length", c.Title)
	}
	x := func(at time.Duration) float64 {
		return math.Round((labelsTo+float64(resultsAt-labelsTo-16)*float64(at)/float64(until))*10) / 10
	}
	v := view{
		Chart: c, Width: width, LabelsTo: labelsTo, ResultsAt: resultsAt,
		Bottom: top + rowHeight*len(c.Rows), Height: top + rowHeight*len(c.Rows) + keyHeight,
	}
	step := stepFor(until)
	for at := time.Duration(0); at <= until; at += step {
		v.Ticks = append(v.Ticks, tick{x(at), fmt.Sprintf("%g s", at.Seconds())})
	}
	for i, r := range c.Rows {
		s := story{Row: r, Y: top + rowHeight*i}
		for _, span := range r.Spans {
			b := bar{Kind: span.Kind, X: x(span.From), W: math.Max(1, x(span.To)-x(span.From)), Text: span.Text}
			switch span.Kind {
			case Answered, Lost:
				b.Y, b.H = float64(s.Y)+6, 12
			default:
				b.Y, b.H = float64(s.Y)+21, 5
			}
			s.Bars = append(s.Bars, b)
		}
		for _, m := range r.Marks {
			s.Signs = append(s.Signs, sign{m.Kind, x(m.At), float64(s.Y) + 23.5, m.Text})
		}
		v.Stories = append(v.Stories, s)
	}
	at := 16
	for _, e := range c.Key {
		isMark := e.Kind == Term || e.Kind == Kill || e.Kind == Gone
		v.Legend = append(v.Legend, legend{Entry: e, X: at, IsMark: isMark, TextPos: at + 24})
		at += 24 + 7*len(e.Text) + 18
	}
	var out bytes.Buffer
	if err := picture.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("draw the timeline %q: %w", c.Title, err)
	}
	return out.Bytes(), nil
}

// stepFor gives 4 to 10 ticks.
func stepFor(until time.Duration) time.Duration {
	for _, step := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second} {
		if until/step <= 9 {
			return step
		}
	}
	return time.Minute
}

var picture = template.Must(template.New("picture").Funcs(template.FuncMap{
	"odd":    func(i int) bool { return i%2 == 1 },
	"mid":    func(y int) int { return y + 21 },
	"add":    func(a, b int) int { return a + b },
	"width":  func() int { return width - 16 },
	"height": func() int { return rowHeight },
	"label":  func() int { return 16 },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="ui-sans-serif, system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12.5" role="img" aria-label="{{html .Title}}">
<style>
.page{fill:#fff}.text{fill:#1f2328}.faint{fill:#59636e}.line{stroke:#d1d9e0}.row{fill:#f6f8fa}
.answered{fill:#1a7f37}.lost{fill:#cf222e}.draining{fill:#54aeff}.waiting{fill:#0969da}.idle{fill:#d4a72c}.lastcall{fill:#bc4c00}
.term{fill:#8250df}.kill{stroke:#cf222e;stroke-width:2.4;fill:none}.gone{fill:#1f2328}
@media (prefers-color-scheme: dark){
.page{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}.line{stroke:#3d444d}.row{fill:#151b23}
.answered{fill:#3fb950}.lost{fill:#f85149}.draining{fill:#388bfd}.waiting{fill:#79c0ff}.idle{fill:#d29922}.lastcall{fill:#db6d28}
.term{fill:#ab7df8}.kill{stroke:#f85149}.gone{fill:#f0f6fc}}
</style>
<rect class="page" width="{{.Width}}" height="{{.Height}}" rx="8"/>
<text class="text" x="16" y="26" font-size="15" font-weight="600">{{html .Title}}</text>
{{- range $i, $s := .Stories}}
{{- if odd $i}}{{else}}
<rect class="row" x="8" y="{{$s.Y}}" width="{{width}}" height="{{height}}" rx="4"/>{{end}}{{end}}
{{- range .Ticks}}
<line class="line" x1="{{.X}}" x2="{{.X}}" y1="50" y2="{{$.Bottom}}"/>
<text class="faint" x="{{.X}}" y="45" text-anchor="middle" font-size="11">{{html .Text}}</text>
{{- end}}
{{- range .Stories}}
<text class="text" x="{{label}}" y="{{mid .Y}}">{{html .Label}}</text>
{{- range .Bars}}
<rect class="{{.Kind}}" x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}" rx="2"><title>{{html .Text}}</title></rect>
{{- end}}
{{- range .Signs}}
<g transform="translate({{.X}} {{.Y}})">{{template "sign" .Kind}}<title>{{html .Text}}</title></g>
{{- end}}
<text class="{{if .Good}}answered{{else}}lost{{end}}" x="{{$.ResultsAt}}" y="{{mid .Y}}" font-weight="500">{{html .Result}}</text>
{{- end}}
{{- range .Legend}}
{{if .IsMark}}<g transform="translate({{add .X 8}} {{add $.Bottom 21}})">{{template "sign" .Kind}}</g>{{else}}<rect class="{{.Kind}}" x="{{.X}}" y="{{add $.Bottom 16}}" width="16" height="9" rx="2"/>{{end}}
<text class="faint" x="{{.TextPos}}" y="{{add $.Bottom 25}}" font-size="11.5">{{html .Text}}</text>
{{- end}}
</svg>
{{define "sign"}}{{if eq . "kill"}}<path class="kill" d="M-4.5 -4.5L4.5 4.5M-4.5 4.5L4.5 -4.5"/>{{else if eq . "term"}}<path class="term" d="M-5 4.5L0 -5L5 4.5Z"/>{{else}}<rect class="gone" x="-1.5" y="-6" width="3" height="12"/>{{end}}{{end}}`))
