package rehearsal

import (
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

// WriteTable writes the result as a table that fits the terminal.
func (r *Result) WriteTable(w io.Writer, s console.Style) error {
	t := table{console.NewTable(w, s)}
	t.head(r)
	group := ""
	for _, row := range r.Rows {
		if row.Group != group {
			group = row.Group
			t.Line("")
			t.Line("%s", s.Heading(group))
		}
		t.row(row, r.ownNumbers)
	}
	t.Line("")
	t.foot(r)
	return t.Flush()
}

type table struct{ *console.Table }

func (t table) head(r *Result) {
	envoy := ""
	if strategy.UsesEnvoy(r.Proxy) {
		envoy = " (Envoy)"
	}
	t.Line("%s", t.Bold(t.Wrap("", "A client asks GET "+r.Path+"; at that moment the deployment is scaled to 0.")))
	t.Detail("", "client → gateway → sidecar%s → app; grace period %s; the gateway removes the endpoint after %s",
		envoy, terminal.Seconds(duration(float64(r.GraceMS))), terminal.Seconds(propagation))
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.istio }) {
		t.Detail("", "Istio's agent: %s", r.IstioAgent)
	}
	t.Line("")
	t.Line("%s", "  "+name("strategy", t.Style)+console.Left("the client got", answerWidth)+
		console.Right("pod stayed", stayWidth)+console.Right("idle", lagWidth)+"  ended by")
}

func (t table) row(r Row, showExpected bool) {
	t.Line("%s", line(r, t.Style))
	t.Detail("    ", "%s", r.Words)
	if showExpected {
		t.Detail("    ", "expected: %s", r.Expected)
	}
	if r.isNamed() {
		c := r.Report.Open[0]
		client := fmt.Sprintf("%q", c.Request)
		if c.Request == "" {
			client = "the client " + c.Peer
		}
		t.Detail("    ", "its report: verdict %s, %s open for %s, ended by %s",
			r.Report.Verdict, client, terminal.Measured(time.Duration(c.Age)), c.Ending)
	}
	if r.OK {
		return
	}
	if r.Unjudged {
		t.Line("    %s", t.Dim("not judged: the machine was too busy for these times"))
	}
	for _, c := range r.Checks {
		if !c.OK {
			t.Line("    %s %s: expected %s", t.Mark(false), c.What, console.Cut(c.Want, t.Width()-17-len(c.What)))
			t.Line("      %s got %s", console.Left("", len(c.What)+4), console.Cut(c.Got, t.Width()-17-len(c.What)))
		}
	}
}

// isNamed reports whether lastcall's report names a request that was open.
func (r Row) isNamed() bool { return r.lastcall && r.Report != nil && len(r.Report.Open) > 0 }

// isAnswered reports whether the client got the complete response.
func (r Row) isAnswered() bool { return r.Status == http.StatusOK && r.Error == "" }

// name is the first column, on a line of its own where the others would not fit.
func name(text string, s console.Style) string {
	if s.Width() < console.Width {
		return text + "\n    "
	}
	return console.Left(text, nameWidth)
}

// line is a row's first line in the table: the client's result in its colour, and a mark if it is not as expected.
func line(r Row, s console.Style) string {
	answer := console.Left(console.Answer(r.Status, r.Error != "", r.TookMS), answerWidth)
	if r.isAnswered() {
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
	return fmt.Sprintf("%s %s%s%s%s  %s", mark, name(r.Strategy, s), answer,
		console.Right(console.Millis(r.StayedMS), stayWidth), console.Right(console.Lag(r.LagMS), lagWidth), end)
}

// groups writes for each group of rows how many requests were answered, and how long a pod stayed for nothing.
func (t table) groups(rows []Row) {
	t.Line("%s", t.Bold("  answered  waited for nothing  of all ways"))
	for len(rows) > 0 {
		all, answered, idle := 0, 0, 0.0
		for _, r := range rows {
			if r.Group != rows[0].Group {
				break
			}
			all++
			if idle = max(idle, r.LagMS); r.isAnswered() {
				answered++
			}
		}
		count := console.Left(fmt.Sprintf("%d of %d", answered, all), len("answered"))
		if answered == all {
			count = t.Good(count)
		} else {
			count = t.Bad(count)
		}
		t.Line("  %s  %s  %s", count, console.Left("up to "+console.Lag(idle), len("waited for nothing")),
			console.Cut(rows[0].Group, t.Width()-32))
		rows = rows[all:]
	}
	t.Line("")
}

func (t table) foot(r *Result) {
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
		if row.isNamed() && row.OK {
			named++
		}
	}
	text := fmt.Sprintf("%d of %d ways as expected, in %s.", good, len(r.Rows), console.Millis(r.TookMS))
	t.Line("%s %s", t.Mark(r.OK), t.Bold("The experiment: "+text))
	if unjudged > 0 {
		t.Text("  ", "%d not judged: the machine was too busy for their times. Repeat it on a quieter one.", unjudged)
	}
	if named > 0 {
		t.Text("  ", "%d longer than the grace period: got a 503 before SIGKILL, and is named in the report.", named)
	}
	if note := busyNote(duration(r.AllowanceMS)); note != "" {
		t.Detail("  ", "%s", note)
	}
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return !row.OK && row.Strategy == "lastcall-istio-classic" }) {
		t.Detail("  ", "lastcall-istio-classic needs a network namespace of its own where other programs of this "+
			"machine have sockets in other cgroups, as services do: "+
			"the hook takes these for another container of the pod. "+
			"unshare -rn sh -c 'ip link set lo up; COMMAND'")
	}
	if r.Logs != "" {
		t.Line("  %s", t.Dim("All logs are in "+r.Logs+"."))
	}
}
