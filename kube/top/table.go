package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/live"
	"github.com/lastcall-dev/lastcall/internal/terminal"
)

// Style is how a board is written.
type Style struct {
	Width, Height int  // of the terminal; 0: no limit
	Colour        bool // ANSI colours
}

// View is what is to be shown.
type View struct {
	Title    string
	Pods     []Pod
	IsAll    bool
	Problem  error
	Selected string // NAMESPACE/NAME of the pod whose connections are listed; empty: none
	Now      time.Time
}

const (
	calm  = "\x1b[32m"
	busy  = "\x1b[33m"
	late  = "\x1b[31m"
	faint = "\x1b[2m"
	plain = "\x1b[0m"
)

// Text writes a view: one line for each pod, then the details of the selected one. Lines are cut to the width; pods that do
// not fit into the height are counted.
func (v View) Text(s Style) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	add("%s", v.heading())
	name := len("POD")
	for _, p := range v.Pods {
		name = max(name, len(v.name(p)))
	}
	if s.Width > 0 {
		name = min(name, max(12, s.Width-46))
	}
	const row = "%s %-*s  %-9s %9s %8s %5s %5s  %s"
	add("%s", s.paint(faint, fmt.Sprintf(row, " ", name, "POD", "PHASE", "LAST CALL", "SIGKILL", "BUSY", "IDLE", "OLDEST REQUEST")))
	details := v.details(s)
	fits := len(v.Pods)
	if s.Height > 0 {
		fits = min(fits, max(1, s.Height-len(lines)-len(details)-2))
	}
	first := max(0, min(v.index()-fits/2, len(v.Pods)-fits))
	for _, p := range v.Pods[first : first+fits] {
		mark := " "
		if v.Selected == p.Namespace+"/"+p.Name {
			mark = ">"
		}
		phase, colour := p.phase()
		limit, kill, busyText, idleText := p.numbers(v.Now)
		add("%s", s.paint(colour, fmt.Sprintf(row, mark, name, ansi.Truncate(v.name(p), name, "…"), phase, limit, kill, busyText, idleText, p.remark(v.Now))))
	}
	if hidden := len(v.Pods) - fits; hidden > 0 {
		add("%s", s.paint(faint, fmt.Sprintf("  and %d more", hidden)))
	}
	if len(v.Pods) == 0 {
		add("  no pods")
	}
	lines = append(lines, details...)
	for i := range lines {
		if s.Width > 0 {
			lines[i] = ansi.Truncate(lines[i], s.Width, "…")
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// heading sums the pods up.
func (v View) heading() string {
	busy, idle, draining := 0, 0, 0
	for _, p := range v.Pods {
		if p.State == nil {
			continue
		}
		b, i := p.State.Total()
		busy, idle = busy+b, idle+i
		if p.State.Drain != nil {
			draining++
		}
	}
	text := fmt.Sprintf("%s: %d pods, %d draining, %d connections busy, %d idle", v.Title, len(v.Pods), draining, busy, idle)
	if !v.IsAll {
		text += fmt.Sprintf(" (the first %d pods)", MostPods)
	}
	if v.Problem != nil {
		text += "\ncannot list the pods: " + terminal.Printable(v.Problem.Error())
	}
	return text
}

// name is a pod's, without the namespace if all pods have the same.
func (v View) name(p Pod) string {
	if v.Pods[0].Namespace == v.Pods[len(v.Pods)-1].Namespace {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// index is the selected pod's; 0 if there is none.
func (v View) index() int {
	for i, p := range v.Pods {
		if v.Selected == p.Namespace+"/"+p.Name {
			return i
		}
	}
	return 0
}

// details lists the selected pod's connections and what delays its exit.
func (v View) details(s Style) []string {
	if v.Selected == "" || len(v.Pods) == 0 {
		return nil
	}
	p := v.Pods[v.index()]
	lines := []string{"", p.Namespace + "/" + p.Name + " on " + cmp.Or(p.Node, "no node yet") + ", " + p.Status}
	text := p.Report
	if p.State == nil {
		text = cmp.Or(text, p.Problem)
	}
	if text != "" {
		for line := range strings.SplitSeq(ansi.Wordwrap(terminal.Printable(text), max(20, s.Width-2), ""), "\n") {
			lines = append(lines, "  "+line)
		}
	}
	if p.State == nil {
		return lines
	}
	for _, c := range p.State.Connections {
		lines = append(lines, fmt.Sprintf("  %-12s %5d busy %5d idle", cmp.Or(terminal.Printable(c.Protocol), "not known"), c.Busy, c.Idle))
	}
	for _, h := range p.State.Holding {
		lines = append(lines, s.paint(busy, fmt.Sprintf("  %8s  %s %s %s", age(time.Duration(h.Age)+v.Now.Sub(p.received)), terminal.Printable(h.Protocol), terminal.Printable(h.Peer), terminal.Printable(h.Request))))
	}
	return lines
}

// phase is a word for the agent, or for the pod, and its colour.
func (p Pod) phase() (word, colour string) {
	if p.State == nil {
		return cmp.Or(map[string]string{"Running": "?", "Terminating": "ends"}[p.Status], strings.ToLower(p.Status)), faint
	}
	phase := terminal.Printable(p.State.Phase)
	switch {
	case p.Status == "Gone":
		return "gone", faint
	case phase == drain.LastCall.String():
		return phase, late
	case p.State.Drain != nil:
		return phase, busy
	case phase == drain.Done.String():
		return phase, faint
	case phase == live.Starting:
		return phase, ""
	}
	return phase, calm
}

// numbers are the columns of numbers; "-" for none.
func (p Pod) numbers(now time.Time) (limit, kill, busy, idle string) {
	limit, kill, busy, idle = "-", "-", "-", "-"
	if p.State == nil {
		return limit, kill, busy, idle
	}
	if p.State.Connections != nil {
		b, i := p.State.Total()
		busy, idle = strconv.Itoa(b), strconv.Itoa(i)
	}
	if d := p.State.Drain; d != nil {
		passed := now.Sub(p.received)
		left := func(m drain.Millis) string {
			return strconv.FormatFloat(max(0, (time.Duration(m)-passed).Seconds()), 'f', 1, 64) + "s"
		}
		if kill = left(d.Kill); d.Limit != nil {
			limit = left(*d.Limit)
		}
	}
	return limit, kill, busy, idle
}

// remark is the oldest request, or why there is no state.
func (p Pod) remark(now time.Time) string {
	switch {
	case p.State != nil && len(p.State.Holding) > 0:
		h := p.State.Holding[0]
		return age(time.Duration(h.Age)+now.Sub(p.received)) + " " + cmp.Or(terminal.Printable(h.Request), terminal.Printable(h.Protocol))
	case p.Report != "":
		return terminal.Printable(p.Report)
	case p.State == nil:
		return terminal.Printable(p.Problem)
	}
	return ""
}

// age is a rounded duration.
func age(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return d.Truncate(time.Minute).String()
	case d >= time.Minute:
		return d.Truncate(time.Second).String()
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
}

func (s Style) paint(colour, text string) string {
	if !s.Colour || colour == "" {
		return text
	}
	return colour + text + plain
}
