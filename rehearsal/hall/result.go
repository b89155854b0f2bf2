package hall

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// Result is the outcome of a run.
type Result struct {
	TookMS int64     `json:"took_ms"`
	Rows   []Outcome `json:"rows"`
}

// Passed reports whether each row that ran is as it should be.
func (r *Result) Passed() bool {
	return !slices.ContainsFunc(r.Rows, func(o Outcome) bool { return o.Skipped == "" && !o.OK() })
}

// Columns of the table.
const (
	nameWidth   = 16
	numberWidth = 10
	width       = 80
)

// WriteTable writes the result as a table, at most 80 columns wide.
func (r *Result) WriteTable(w io.Writer, s console.Style) error {
	out := bufio.NewWriter(w)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	head := console.Left("", nameWidth)
	for _, title := range []string{"lost", "short", "gone", "fixed", "gone", "lastcall"} {
		head += console.Right(title, numberWidth)
	}
	line("%s", s.Bold(head))
	for _, o := range r.Rows {
		if o.Skipped != "" {
			line("%s", s.Dim(console.Left("  "+o.Name, nameWidth)+"  not run: "+o.Skipped))
			continue
		}
		if o.Error != "" {
			line("%s %s", s.Mark(false), console.Cut(o.Name+": "+o.Error, width-2))
			continue
		}
		line("%s %s%s%s%s%s%s%s", s.Mark(o.OK()), console.Left(o.Name, nameWidth-2),
			number(o.Lost), number(o.Short), after(o.GoneMS), number(o.FixedLost), after(o.FixedGoneMS), number(o.LastcallLost))
		line("    %s", s.Dim(console.Cut(o.Bug, width-4)))
		line("    %s", s.Dim(console.Cut("fix: "+o.Fix, width-4)))
	}
	if ran, found, slowest := r.count(); ran > 0 {
		line("%d of %d bugs found, %d s; the slowest server took %d s", found, ran, r.TookMS/1000, slowest/1000)
	}
	return out.Flush()
}

// count returns how many rows ran, in how many the bug lost a request, and the longest time that one took, in ms.
func (r *Result) count() (ran, found int, slowest int64) {
	for _, o := range r.Rows {
		if o.Skipped != "" {
			continue
		}
		ran++
		if o.Error == "" && o.Lost > 0 {
			found++
		}
		slowest = max(slowest, o.TookMS)
	}
	return ran, found, slowest
}

// number is a count; -1 is shown as a dash.
func number(n int) string {
	if n < 0 {
		return console.Right("-", numberWidth)
	}
	return console.Right(strconv.Itoa(n), numberWidth)
}

func after(ms int64) string {
	if ms == 0 {
		return console.Right("-", numberWidth)
	}
	return console.Right(fmt.Sprintf("%.1f s", float64(ms)/1000), numberWidth)
}
