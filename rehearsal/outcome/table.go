package outcome

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Sizes of the table, columns. It fits a terminal of 80.
const (
	titleWidth = 24
	cellWidth  = 18
	inOneTable = 3 // strategies side by side
)

// WriteTable writes the result as a table of the strategies side by side, at most 80 columns wide.
func (r *Result) WriteTable(w io.Writer, s console.Style) error {
	t := table{console.NewTable(w, s)}
	t.head(r)
	for i := 0; i < len(r.Rows); i += inOneTable {
		t.columns(r.Rows[i:min(i+inOneTable, len(r.Rows))])
	}
	for _, row := range r.Rows {
		t.losses(row)
		t.pods(row)
	}
	t.foot(r)
	return t.Flush()
}

type table struct{ *console.Table }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (t table) head(r *Result) {
	name := cmp.Or(r.Workload, "the app")
	title := fmt.Sprintf("A pod of %s is replaced by another under load.", name)
	if len(r.Rows[0].Runs[0].Pods) > 0 {
		title = fmt.Sprintf("Pods of %s end under load.", name)
	}
	t.Line("%s", t.Style.Bold(console.Cut(terminal.Printable(title), t.Style.Width())))
	dim := func(format string, args ...any) {
		t.Line("%s", t.Style.Dim(console.Cut(terminal.Printable(fmt.Sprintf(format, args...)), t.Style.Width())))
	}
	about := fmt.Sprintf("grace period %s; %s", terminal.Seconds(ms(r.GraceMS)), r.Hook)
	if r.URL != "" { // the pods were those of a cluster
		dim("%s, from this machine", r.URL)
	} else {
		dim("app: %s", r.App)
		about += fmt.Sprintf("; clients learn of the change after %s to %s",
			terminal.Seconds(ms(r.PropagationMS[0])), terminal.Seconds(ms(r.PropagationMS[1])))
	}
	dim("%s", about)
	for _, k := range r.Requests {
		took := "without an end"
		if k.TookMS > 0 {
			took = fmt.Sprintf("undisturbed in %s, %d bytes", terminal.Measured(ms(k.TookMS)), k.Bytes)
		}
		dim("%s: weight %d, %s", k.Request, k.Weight, took)
	}
	for _, n := range r.Notes {
		t.wrapped("", "note: "+n)
	}
	t.Line("")
}

func (t table) columns(rows []Row) {
	one := func(title string, value func(Row) string, paint func(Row, string) string) {
		text := console.Left(title, titleWidth)
		for _, row := range rows {
			cell := console.Right(value(row), cellWidth)
			if paint != nil {
				cell = paint(row, cell)
			}
			text += cell
		}
		t.Line("%s", text)
	}
	one("", func(r Row) string { return r.Strategy }, func(_ Row, text string) string { return t.Style.Bold(text) })
	one("requests", func(r Row) string { return strconv.Itoa(r.Requests) }, nil)
	one("lost", func(r Row) string { return strconv.Itoa(r.Lost) }, func(r Row, text string) string {
		if r.Lost > 0 {
			return t.Style.Bad(text)
		}
		return t.Style.Good(text)
	})
	reasons := map[traffic.Failure]int{}
	for _, row := range rows {
		maps.Copy(reasons, row.Reasons)
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		one("  "+string(reason), func(r Row) string { return strconv.Itoa(r.Reasons[reason]) }, nil)
	}
	one("pod gone after", func(r Row) string { return terminal.Measured(ms(r.GoneMS())) }, nil)
	one("the app ended by", Row.EndedBy, nil)
	one("load", func(r Row) string { return fmt.Sprintf("%.1f/s", r.Load) }, nil)
	t.Line("")
}

func (t table) losses(row Row) {
	notes := row.endings()
	if len(row.Losses) == 0 && len(notes) == 0 {
		return
	}
	t.Line("%s", t.Style.Bold(row.Strategy)+t.Style.Dim(": "+console.Cut(row.Words, t.Style.Width()-2-len(row.Strategy))))
	for _, n := range notes {
		t.wrapped("  ", n)
	}
	for _, l := range row.Losses {
		t.wrapped("  ", fmt.Sprintf("%d × %s: %s %s (%s)", l.Count, l.Request, l.Reason, l.Phase, l.Span()))
		if len(l.Pods) > 0 {
			t.wrapped("      ", "pods that were ending, the likeliest first: "+strings.Join(l.Pods, ", "))
		}
		if !slices.Contains(notes, l.Fix) {
			t.wrapped("      ", l.Fix)
		}
	}
	t.Line("")
}

// endings are the findings about the runs' ends, each once.
func (row Row) endings() (all []string) {
	for _, run := range row.Runs {
		if run.HookError != "" {
			all = append(all, "the hook failed: "+run.HookError)
		}
		if run.Cause != "" {
			all = append(all, run.Cause)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Span is when the requests were lost, in words; from the deletion.
func (l Loss) Span() string {
	first, last := terminal.Measured(ms(l.FirstMS)), terminal.Measured(ms(l.LastMS))
	if first == last {
		return "at " + first
	}
	return "from " + first + " to " + last
}

// wrapped writes text in lines that fit the terminal.
func (t table) wrapped(indent, text string) { t.Line("%s", t.Style.Wrap(indent, text)) }

func (t table) foot(r *Result) {
	first := r.Rows[0]
	text := fmt.Sprintf("%s lost %d of %d requests, in %s.",
		first.Strategy, first.Lost, first.Requests, terminal.Measured(ms(r.TookMS)))
	t.Line("%s %s", t.Style.Mark(r.OK), t.Style.Bold(text))
	if !r.OK {
		for _, row := range r.Rows[1:] {
			if row.Lost == 0 {
				t.Line("  %s lost none of %d.", row.Strategy, row.Requests)
			}
		}
	}
	if first.Faults > 0 {
		t.wrapped("  ", fmt.Sprintf(
			"%d more failed without the rollout: the app cannot serve this load; lower --load.", first.Faults))
	}
	if r.Logs != "" {
		t.Line("  %s", t.Style.Dim("All logs are in "+r.Logs+"."))
	}
}

// Sizes of the table of pods, columns.
const (
	podWidth  = 30
	timeWidth = 9
	maxPods   = 20 // that the table lists
)

// pods writes the ends of the pods of the row's last run, if there are several.
func (t table) pods(row Row) {
	pods := row.Runs[len(row.Runs)-1].Pods
	if len(pods) == 0 {
		return
	}
	t.Line("%s", t.Style.Bold("Pods that ended")+t.Style.Dim(": deleted in the rollout; the rest after the deletion"))
	t.podLine("", "deleted", "SIGTERM", "ended", "gone")
	after := func(at, from int64) string {
		if at < 0 || from < 0 {
			return "-"
		}
		return terminal.Measured(ms(max(0, at-from)))
	}
	for _, p := range pods[:min(len(pods), maxPods)] {
		t.podLine(p.Name, after(p.DeletedMS, 0),
			after(p.TermMS, p.DeletedMS), after(p.EndedMS, p.DeletedMS), after(p.GoneMS, p.DeletedMS))
	}
	if n := len(pods) - maxPods; n > 0 {
		t.Line("%s", t.Style.Dim(fmt.Sprintf("and %d more, which the JSON has", n)))
	}
	t.Line("")
}

func (t table) podLine(name string, cells ...string) {
	text := console.Left(console.Cut(name, podWidth-1), podWidth)
	for _, c := range cells {
		text += console.Right(c, timeWidth)
	}
	t.Line("%s", text)
}
