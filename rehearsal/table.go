package rehearsal

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Columns of the table.
const (
	nameWidth   = 32
	answerWidth = 17
	stayWidth   = 10
	lagWidth    = 9
)

// WriteTable writes the result as a table, at most console.Width columns wide.
func (r *Result) WriteTable(w io.Writer, s console.Style) error {
	t := &table{Writer: bufio.NewWriter(w), style: s}
	t.head(r)
	group := ""
	for _, row := range r.Rows {
		if row.Group != group {
			group = row.Group
			t.line("")
			t.line("%s", s.Heading(group))
		}
		t.row(row, r.ownNumbers)
	}
	t.line("")
	t.foot(r)
	return t.Flush()
}

type table struct {
	*bufio.Writer
	style console.Style
}

func (t *table) line(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }

func (t *table) head(r *Result) {
	s := t.style
	t.line("%s", s.Bold("A client asks GET "+r.Path+"; at that moment the deployment is scaled to 0."))
	t.line("%s", s.Dim(console.Wrap("", fmt.Sprintf(
		"client → gateway → sidecar%s → app; grace period %s; the gateway removes the endpoint after %s",
		real(r.Proxy),
		terminal.Seconds(duration(float64(r.GraceMS))), terminal.Seconds(duration(float64(r.PropagationMS)))))))
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.istio }) {
		t.line("%s", s.Dim("Istio's agent: "+r.IstioAgent))
	}
	t.line("")
	t.line("%s", columns())
}

// real marks a real Envoy.
func real(proxy string) string {
	if strategy.UsesEnvoy(proxy) {
		return " (Envoy)"
	}
	return ""
}

func (t *table) row(r Row, showExpected bool) {
	s := t.style
	t.line("%s", line(r, s))
	t.line("%s", s.Dim(console.Wrap("    ", r.Words)))
	if showExpected {
		t.line("%s", s.Dim(console.Wrap("    ", "expected: "+r.Expected)))
	}
	if r.lastcall && r.Report != nil && len(r.Report.Open) > 0 {
		c := r.Report.Open[0]
		client := fmt.Sprintf("%q", c.Request)
		if c.Request == "" {
			client = "the client " + c.Peer
		}
		t.line("%s", s.Dim(console.Wrap("    ", fmt.Sprintf("its report: verdict %s, %s open for %s, ended by %s",
			r.Report.Verdict, client, terminal.Measured(time.Duration(c.Age)), c.Ending))))
	}
	if r.OK {
		return
	}
	if r.Unjudged {
		t.line("    %s", s.Dim("not judged: the machine was too busy for these times"))
	}
	for _, c := range r.Checks {
		if !c.OK {
			t.line("    %s %s: expected %s", s.Mark(false), c.What, console.Cut(c.Want, console.Width-17-len(c.What)))
			t.line("      %s got %s", console.Left("", len(c.What)+4), console.Cut(c.Got, console.Width-17-len(c.What)))
		}
	}
}

// columns are the titles of line.
func columns() string {
	return fmt.Sprintf("  %s%s%s%s  %s", console.Left("strategy", nameWidth), console.Left("the client got", answerWidth),
		console.Right("pod stayed", stayWidth), console.Right("idle", lagWidth), "ended by")
}

// line is a row's first line in the table: the client's result in its colour, and a mark if it is not as expected.
func line(r Row, s console.Style) string {
	answer := console.Left(console.Answer(r.Status, r.Error != "", r.TookMS), answerWidth)
	if r.Status == http.StatusOK && r.Error == "" {
		answer = s.Good(answer)
	} else {
		answer = s.Bad(answer)
	}
	end := "itself"
	if r.Killed {
		end = s.Bad("SIGKILL")
	}
	mark := " "
	if !r.OK {
		mark = s.Mark(false)
	}
	return fmt.Sprintf("%s %s%s%s%s  %s", mark, console.Left(r.Strategy, nameWidth), answer,
		console.Right(console.Millis(r.StayedMS), stayWidth), console.Right(console.Lag(r.LagMS), lagWidth), end)
}

// groups writes for each group of rows how many requests were answered, and how long a pod stayed for nothing.
func (t *table) groups(rows []Row) {
	t.line("  %s%s%s", console.Left("of all ways", nameWidth), console.Left("answered", answerWidth),
		console.Right("idle, at most", stayWidth+lagWidth))
	for len(rows) > 0 {
		all, answered, idle := 0, 0, 0.0
		for _, r := range rows {
			if r.Group != rows[0].Group {
				break
			}
			all++
			if idle = max(idle, r.LagMS); r.Status == http.StatusOK && r.Error == "" {
				answered++
			}
		}
		count := console.Left(fmt.Sprintf("%d of %d", answered, all), answerWidth)
		if answered == all {
			count = t.style.Good(count)
		} else {
			count = t.style.Bad(count)
		}
		t.line("  %s%s%s", console.Left(console.Cut(rows[0].Group, nameWidth-1), nameWidth), count,
			console.Right(console.Lag(idle), stayWidth+lagWidth))
		rows = rows[all:]
	}
	t.line("")
}

func (t *table) foot(r *Result) {
	s := t.style
	if len(r.Rows) > 1 {
		t.groups(r.Rows)
	}
	good, unjudged, named := 0, 0, 0
	for _, row := range r.Rows {
		if row.OK {
			good++
		}
		if row.Unjudged {
			unjudged++
		}
		if row.lastcall && row.Report != nil && len(row.Report.Open) > 0 && row.OK {
			named++
		}
	}
	text := fmt.Sprintf("%d of %d as expected, in %s.", good, len(r.Rows), console.Millis(r.TookMS))
	t.line("%s %s", s.Mark(r.OK), s.Bold(text))
	if unjudged > 0 {
		t.line("%s", console.Wrap("  ", fmt.Sprintf(
			"%d not judged: the machine was too busy for their times. Repeat it on a quieter one.", unjudged)))
	}
	if named > 0 {
		t.line("%s", console.Wrap("  ", fmt.Sprintf(
			"%d longer than the grace period: got a 503 before SIGKILL, and is named in the report.", named)))
	}
	if note := busyNote(time.Duration(r.AllowanceMS * float64(time.Millisecond))); note != "" {
		t.line("%s", s.Dim(console.Wrap("  ", note)))
	}
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return !row.OK && row.Strategy == "lastcall-istio-classic" }) {
		t.line("%s", s.Dim(console.Wrap("  ",
			"lastcall-istio-classic needs a network namespace of its own where other programs of this machine "+
				"have sockets in other cgroups, as services do: the hook takes these for another container of the pod. "+
				"unshare -rn sh -c 'ip link set lo up; COMMAND'")))
	}
	if r.Logs != "" {
		t.line("  %s", s.Dim("All logs are in "+r.Logs+"."))
	}
}
