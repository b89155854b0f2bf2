package plan

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// Sizes of the text, in columns.
const (
	columns   = 80
	labelWide = 18
	axisWide  = columns - labelWide - 2
)

// Signs of the bars.
const (
	hook   = "░"
	stops  = "▓"
	served = "█"
	lost   = "×"
	none   = " "
	late   = "·"
	open   = "?"
)

// WriteText prints the plan for people, 80 columns wide.
func (p *Plan) WriteText(w io.Writer, s console.Style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", s.Bold(terminal.Printable(p.Name)))
	wrap(&b, "", p.summary())
	b.WriteString("\n" + p.axis() + "\n")
	p.lanes(&b)
	b.WriteString(s.Dim(legend) + "\n")
	b.WriteByte('\n')
	for _, phase := range p.Phases {
		wrap(&b, fmt.Sprintf("%8s  ", terminal.Seconds(phase.From)), phase.Why)
		text := "new connections " + phase.New
		if phase.To == phase.From {
			continue
		}
		if phase.InFlight != termination.None {
			text += ", in flight " + phase.InFlight
		}
		if phase.IsIdle {
			text += "; nothing waits for the pod"
		}
		b.WriteString(s.Dim("          "+text) + "\n")
	}
	wrap(&b, fmt.Sprintf("%8s  ", terminal.Seconds(p.gone())), p.ending())
	b.WriteByte('\n')
	fmt.Fprintf(&b, "A request of %s that\n", terminal.Seconds(p.Options.Request))
	for _, a := range p.Fates {
		paint := s.Good
		switch {
		case a.Result == termination.Unknown:
			paint = s.Dim
		case !a.IsServed:
			paint = s.Bad
		}
		fmt.Fprintf(&b, "  %-29s %s\n", a.arrival(), paint(cut(a.outcome(), columns-32)))
	}
	b.WriteByte('\n')
	for _, text := range p.Promises() {
		wrap(&b, "- ", text)
	}
	for _, c := range p.Containers {
		for _, v := range c.Settings {
			wrap(&b, "  ", fmt.Sprintf("%s: %s is %s (%s)", c.Name, v.Name, v.Value, v.Source))
		}
	}
	for _, note := range p.Notes {
		wrap(&b, "note: ", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// summary is the pod in one sentence.
func (p *Plan) summary() string {
	text := fmt.Sprintf("Grace period %d s (%s)", p.Grace/time.Second, p.GraceSource)
	if p.Mesh != "" {
		text += "; " + p.Mesh
	}
	if p.HasLastcall {
		text += fmt.Sprintf("; lastcall, last call at %s", terminal.Seconds(p.LastCall))
	}
	return text + fmt.Sprintf("; a request of %s is in flight", terminal.Seconds(p.Options.Request))
}

// axis is the line with the times.
func (p *Plan) axis() string {
	line := []rune(strings.Repeat(" ", columns))
	tick, free := max(time.Second, step(p.until())), 0
	for at := time.Duration(0); at <= p.until(); at += tick {
		text := strings.ReplaceAll(terminal.Seconds(at), " ", "")
		x := labelWide + p.column(at)
		if x+len(text) > columns {
			break
		}
		if x >= free {
			free = x + copy(line[x:], []rune(text)) + 1
		}
	}
	return strings.TrimRight(string(line), " ")
}

// column is a moment's place on the axis.
func (p *Plan) column(at time.Duration) int {
	return int(math.Round(float64(at) / float64(p.until()) * axisWide))
}

// lanes draws a line for the clients and one for each container.
func (p *Plan) lanes(b *strings.Builder) {
	lane := func(label string, bars []sign, marks ...sign) {
		text := []string{}
		for x := range axisWide + 1 {
			at, drawn := time.Duration(float64(x)/axisWide*float64(p.until())), none
			if i := slices.IndexFunc(bars, func(b sign) bool { return at < b.at }); i >= 0 {
				drawn = bars[i].text
			}
			text = append(text, drawn)
		}
		for _, m := range marks {
			text[min(p.column(m.at), axisWide)] = m.text
		}
		fmt.Fprintf(b, "%-*s%s\n", labelWide, cut(label, labelWide-1), strings.TrimRight(strings.Join(text, ""), " "))
	}
	end, atEnd := min(p.Options.Request, p.Course.Cut), served
	switch {
	case p.Options.Request > p.Best.Cut && p.Best.Cut == p.Course.Cut:
		atEnd = lost
	case p.Options.Request > p.Course.Cut:
		atEnd = open
	}
	lane("in flight", []sign{{end, served}, {min(p.Options.Request, p.Best.Cut), open}, {p.Options.Request, late}},
		sign{end, atEnd})
	connect := p.Options.Propagation + 1 // inclusive
	clients := []sign{{p.Course.Accepts, served}, {min(p.Best.Accepts, max(connect, p.Course.Gone+1)), open}}
	if !p.hasNoClients() {
		clients = append(clients, sign{connect, lost})
	}
	lane("new connections", clients)
	for i, c := range p.Containers {
		m, best := p.Course.Containers[i], p.Best.Containers[i]
		marks := []sign{{m.Signal, "T"}}
		if last := max(m.Gone, best.Gone); last != m.Signal {
			marks = append(marks, sign{last, map[bool]string{true: "K", false: "|"}[best.Killed]})
		}
		if best.Signal > m.Signal {
			marks[0].text = open
		}
		lane(c.Name, []sign{{m.Signal, hook}, {m.Gone, stops}, {best.Gone, open}}, marks...)
	}
}

// sign is drawn up to a moment, as a bar, or at it, as a mark.
type sign struct {
	at   time.Duration
	text string
}

const legend = served + " served  " + lost + " lost  " + open + " unknown  " + hook + " before its stop signal  " +
	stops + " after it  T it  | gone  K SIGKILL"

// cut shortens text to width columns.
func cut(text string, width int) string { return console.Cut(terminal.Printable(text), width) }

// wrap writes text behind a prefix, in lines of 80 columns at most where words allow it.
func wrap(b *strings.Builder, prefix, text string) {
	words := terminal.Printable(strings.Join(strings.Fields(text), " "))
	for line := range strings.SplitSeq(terminal.Wrap(words, columns-len(prefix)), "\n") {
		b.WriteString(prefix + line + "\n")
		prefix = strings.Repeat(" ", len(prefix))
	}
}
