package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"text/template"
)

// chart is a picture of curves, that follows the page's light or dark colours. Its y axis begins at 0.
type chart struct {
	title, x, y string // axis titles, in words and with units
	log         bool   // the x axis has powers of ten at equal distances; all x are above 0
	curves      []curve
}

type curve struct {
	name   string
	ours   bool
	points [][2]float64 // x ascending
}

// Sizes of the picture, in pixels.
const (
	chartWidth, chartHeight   = 640, 400
	chartLeft, chartRight     = 64, 24
	chartTop, chartBottom     = 60, 84
	chartMarks                = 4 // shapes of points, so that curves differ without their colours too
	chartLegendAt, legendStep = chartHeight - 16, 156
)

// write draws the chart into a file.
func (c chart) write(path string) error {
	svg, err := c.svg()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, svg, 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

func (c chart) svg() ([]byte, error) {
	lowX, highX, highY := math.Inf(1), math.Inf(-1), 0.0
	for _, each := range c.curves {
		for _, p := range each.points {
			lowX, highX, highY = min(lowX, p[0]), max(highX, p[0]), max(highY, p[1])
		}
	}
	if lowX >= highX || highY <= 0 {
		return nil, fmt.Errorf("draw %q: fewer than two points, or all of them 0", c.title)
	}
	step := niceStep(highY)
	highY = step * math.Ceil(highY/step)
	along := func(v float64) float64 { return v }
	if c.log {
		along = math.Log10
	} else {
		lowX = 0
	}
	x := func(v float64) float64 {
		return round1(chartLeft + (chartWidth-chartLeft-chartRight)*(along(v)-along(lowX))/(along(highX)-along(lowX)))
	}
	y := func(v float64) float64 {
		return round1(chartHeight - chartBottom - (chartHeight-chartTop-chartBottom)*v/highY)
	}
	type tick struct {
		At   float64
		Text string
	}
	type drawn struct {
		Name, Class, Line string
		Mark, X, Y        int
		Points            [][2]float64
		Texts             []string
		Ours              bool
	}
	view := struct {
		Title, X, Y                             string
		Width, Height, Left, Right, Top, Bottom int
		XTicks, YTicks                          []tick
		Curves                                  []drawn
	}{Title: c.title, X: c.x, Y: c.y, Width: chartWidth, Height: chartHeight, Left: chartLeft, Right: chartWidth - chartRight, Top: chartTop, Bottom: chartHeight - chartBottom}
	for v := 0.0; v <= highY*1.001; v += step {
		view.YTicks = append(view.YTicks, tick{y(v), number(v)})
	}
	if c.log {
		for v := math.Pow(10, math.Ceil(math.Log10(lowX))); v <= highX; v *= 10 {
			view.XTicks = append(view.XTicks, tick{x(v), number(v)})
		}
	} else {
		each := niceStep(highX)
		for v := 0.0; v <= highX; v += each {
			view.XTicks = append(view.XTicks, tick{x(v), number(v)})
		}
	}
	others := 0
	for i, each := range c.curves {
		d := drawn{Name: each.name, Ours: each.ours, Class: "ours", X: 16 + i*legendStep, Y: chartLegendAt}
		if !each.ours {
			others++
			d.Class, d.Mark = fmt.Sprintf("other%d", others), others%chartMarks
		}
		var line bytes.Buffer
		for j, p := range each.points {
			fmt.Fprintf(&line, "%c%g %g", "ML"[min(j, 1)], x(p[0]), y(p[1]))
			d.Points = append(d.Points, [2]float64{x(p[0]), y(p[1])})
			d.Texts = append(d.Texts, fmt.Sprintf("%s: %s at %s", each.name, number(p[1]), number(p[0])))
		}
		d.Line = line.String()
		view.Curves = append(view.Curves, d)
	}
	var out bytes.Buffer
	if err := chartPicture.Execute(&out, view); err != nil {
		return nil, fmt.Errorf("draw %q: %w", c.title, err)
	}
	return out.Bytes(), nil
}

// niceStep is a step of 1, 2 or 5 times a power of ten, with at most 6 of them up to high.
func niceStep(high float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(high/6)))
	for _, times := range []float64{1, 2, 5} {
		if high/(times*power) <= 6 {
			return times * power
		}
	}
	return 10 * power
}

func round1(v float64) float64 { return math.Round(v*10) / 10 }

// number has thousands apart, and decimals only below 10.
func number(v float64) string {
	if v != math.Trunc(v) && v < 10 {
		return fmt.Sprintf("%.3g", v)
	}
	return whole(v)
}

var chartPicture = template.Must(template.New("chart").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="ui-sans-serif, system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="14" role="img" aria-label="{{html .Title}}">
<style>
.page{fill:#fff}.text{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d1d9e0}
.ours{color:#1a7f37}.other1{color:#8250df}.other2{color:#0969da}.other3{color:#bc4c00}.other4{color:#59636e}
.curve{fill:none;stroke:currentColor;stroke-width:2}.ours.curve{stroke-width:4}.mark{fill:currentColor}
@media (prefers-color-scheme: dark){.page{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}.grid{stroke:#3d444d}
.ours{color:#3fb950}.other1{color:#ab7df8}.other2{color:#58a6ff}.other3{color:#f0883e}.other4{color:#9198a1}}
</style>
<rect class="page" width="{{.Width}}" height="{{.Height}}" rx="8"/>
<text class="text" x="16" y="26" font-size="16" font-weight="600">{{html .Title}}</text>
<text class="faint" x="16" y="44" font-size="13">{{html .Y}}</text>
{{- range .YTicks}}
<line class="grid" x1="{{$.Left}}" x2="{{$.Right}}" y1="{{.At}}" y2="{{.At}}"/>
<text class="faint" x="{{$.Left}}" y="{{.At}}" dx="-8" dy="4" text-anchor="end" font-size="13">{{.Text}}</text>
{{- end}}
{{- range .XTicks}}
<line class="grid" x1="{{.At}}" x2="{{.At}}" y1="{{$.Top}}" y2="{{$.Bottom}}" stroke-dasharray="2 4"/>
<text class="faint" x="{{.At}}" y="{{$.Bottom}}" dy="18" text-anchor="middle" font-size="13">{{.Text}}</text>
{{- end}}
<text class="faint" x="{{$.Right}}" y="{{.Bottom}}" dy="38" text-anchor="end" font-size="13">{{html .X}}</text>
{{- range .Curves}}
<path class="{{.Class}} curve" d="{{.Line}}"/>
{{- $curve := .}}
{{- range $i, $at := .Points}}
<g class="{{$curve.Class}}" transform="translate({{index $at 0}} {{index $at 1}})">{{template "mark" $curve.Mark}}<title>{{html (index $curve.Texts $i)}}</title></g>
{{- end}}
<g class="{{.Class}}" transform="translate({{.X}} {{.Y}})"><path class="{{.Class}} curve" d="M0 -5H24"/><g transform="translate(12 -5)">{{template "mark" .Mark}}</g></g>
<text class="text" x="{{.X}}" y="{{.Y}}" dx="32"{{if .Ours}} font-weight="600"{{end}}>{{html .Name}}</text>
{{- end}}
</svg>
{{define "mark"}}{{if eq . 0}}<circle class="mark" r="4.5"/>{{else if eq . 1}}<rect class="mark" x="-4" y="-4" width="8" height="8"/>{{else if eq . 2}}<path class="mark" d="M-5 4.5L0 -5L5 4.5Z"/>{{else}}<path class="mark" d="M-5.5 0L0 -5.5L5.5 0L0 5.5Z"/>{{end}}{{end}}`))
