package rollout

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Columns of the table.
const (
	nameWidth   = 22
	numberWidth = 11
)

// WriteTable writes the result as a table, at most console.Width columns wide.
func (r *Result) WriteTable(w io.Writer, s console.Style) error {
	out := bufio.NewWriter(w)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	line("%s", s.Bold(fmt.Sprintf("%d requests per second while pods are replaced one after another.", r.Rate)))
	line("%s", s.Dim(fmt.Sprintf("half through the gateway, half directly to the pods; endpoints propagate within 0 to %s",
		console.Round(time.Duration(r.PropagationMS)*time.Millisecond))))
	line("")
	head := console.Left("strategy", nameWidth)
	for _, h := range []string{"requests", "lost", "gateway", "inside", "replaced", "pod stayed"} {
		head += console.Right(h, numberWidth)
	}
	line("  %s", head)
	line("%s", s.Dim(strings.Repeat("─", console.Width)))
	for _, row := range r.Rows {
		writeRow(line, s, row)
	}
	line("%s", s.Dim(strings.Repeat("─", console.Width)))
	for _, row := range r.Rows {
		if row.Strategy == ours {
			line("%s %s", s.Mark(r.OK), s.Bold(fmt.Sprintf("lastcall lost %d of %d requests over %d replaced pods, in %s.",
				row.Failed, row.Requests, row.Replaced, console.Seconds(time.Duration(r.TookMS)*time.Millisecond))))
		}
	}
	return out.Flush()
}

func writeRow(line func(string, ...any), s console.Style, row Row) {
	number := func(n int) string { return console.Right(strconv.Itoa(n), numberWidth) }
	lost := number(row.Failed)
	mark := " "
	switch {
	case row.Failed > 0:
		lost = s.Bad(lost)
	default:
		lost = s.Good(lost)
	}
	if row.Strategy == ours {
		mark = s.Mark(row.Failed == 0)
	}
	line("%s %s%s%s%s%s%s%s", mark, console.Left(row.Strategy, nameWidth), number(row.Requests), lost,
		number(row.Gateway), number(row.Inside), number(row.Replaced),
		console.Right(console.Seconds(time.Duration(row.StayedMS)*time.Millisecond), numberWidth))
	line("    %s", s.Dim(console.Cut(row.Words, console.Width-4)))
	if text := kinds(row); text != "" {
		line("    %s", s.Dim(console.Cut(text, console.Width-4)))
	}
}

// kinds lists the failures, most frequent first.
func kinds(row Row) string {
	list := slices.SortedFunc(maps.Keys(row.Kinds), func(a, b traffic.Failure) int {
		return cmp.Or(row.Kinds[b]-row.Kinds[a], strings.Compare(string(a), string(b)))
	})
	parts := make([]string, len(list))
	for i, kind := range list {
		parts[i] = fmt.Sprintf("%d × %s", row.Kinds[kind], kind)
	}
	if len(parts) == 0 {
		return ""
	}
	return "lost by: " + strings.Join(parts, ", ")
}
