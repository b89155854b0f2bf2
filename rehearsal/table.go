package rehearsal

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Columns of the table.
const (
	nameWidth   = 33
	answerWidth = 20
	stayWidth   = 11
	lagWidth    = 13
)

// WriteTable writes the result for people, at most console.Width columns wide.
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
	t.line("%s", s.Dim(fmt.Sprintf("client %s → gateway%s → sidecar%s → app; grace period %s; the gateway learns of it after %s",
		r.Client, real(r.Gateway), real(r.Proxy), seconds(r.GraceMS), seconds(r.PropagationMS))))
	if r.AppAtTerm != "" {
		t.line("%s", s.Dim(console.Cut("app: "+r.App, console.Width)))
		t.line("%s", s.Dim("     it "+r.AppAtTerm))
	}
	if r.Gateway != "built in" && r.Gateway != strategy.ProxyEnvoy {
		t.line("%s", s.Dim(console.Cut("gateway: "+r.Gateway, console.Width)))
	}
	t.line("")
	t.line("  %s%s%s%s  %s", console.Left("strategy", nameWidth), console.Left("the client got", answerWidth),
		console.Right("pod stayed", stayWidth), console.Right("of it idle", lagWidth), "ended by")
}

// real says where a real Envoy stands.
func real(proxy string) string {
	if proxy == strategy.ProxyEnvoy {
		return " (Envoy)"
	}
	return ""
}

func seconds(ms int64) string { return console.Round(time.Duration(ms) * time.Millisecond) }

func (t *table) row(r Row, say bool) {
	s := t.style
	answer := console.Left(answerText(r), answerWidth)
	if r.Status == http.StatusOK && r.Error == "" {
		answer = s.Good(answer)
	} else {
		answer = s.Bad(answer)
	}
	end := "itself"
	if r.Killed {
		end = s.Bad("SIGKILL")
	}
	t.line("%s %s%s%s%s  %s", s.Mark(r.OK), console.Left(r.Strategy, nameWidth), answer,
		console.Right(inSeconds(r.StayedMS), stayWidth), console.Right(lagText(r), lagWidth), end)
	t.line("    %s", s.Dim(console.Cut(r.Words, console.Width-4)))
	if say {
		t.line("    %s", s.Dim(console.Cut("stated: "+r.Expected, console.Width-4)))
	}
	if r.lastcall && r.Report != nil && len(r.Report.Open) > 0 {
		c := r.Report.Open[0]
		who := fmt.Sprintf("%q", c.Request)
		if c.Request == "" {
			who = "the client " + c.Peer
		}
		t.line("    %s", s.Dim(console.Cut(fmt.Sprintf("its report: verdict %s, %s open for %s, ended by %s",
			r.Report.Verdict, who, inSeconds(float64(c.AgeMS)), c.Ending), console.Width-4)))
	}
	if r.OK {
		return
	}
	for _, c := range r.Checks {
		if !c.OK {
			t.line("    %s %s: stated %s", s.Mark(false), c.What, console.Cut(c.Want, console.Width-15-len(c.What)))
			t.line("      %s was %s", console.Left("", len(c.What)+4), console.Cut(c.Got, console.Width-15-len(c.What)))
		}
	}
}

func inSeconds(ms float64) string { return fmt.Sprintf("%.2f s", ms/1000) }

func answerText(r Row) string {
	took := console.Right(inSeconds(r.TookMS), 8)
	switch {
	case r.Status == 0:
		return "none after" + took
	case r.Error != "":
		return fmt.Sprintf("%d cut at%s", r.Status, took)
	}
	return fmt.Sprintf("%d after%s", r.Status, took)
}

// lagText is how long the pod stayed after the last byte.
func lagText(r Row) string {
	switch {
	case r.LagMS < 0:
		return "-"
	case r.LagMS < 1000:
		return fmt.Sprintf("%.0f ms", r.LagMS)
	}
	return inSeconds(r.LagMS)
}

func (t *table) foot(r *Result) {
	s := t.style
	good, ours, answered, told := 0, 0, 0, 0
	var worst time.Duration
	for _, row := range r.Rows {
		if row.OK {
			good++
		}
		switch {
		case !row.lastcall:
		case row.Report != nil && len(row.Report.Open) > 0 && row.OK:
			told++
		default:
			ours++
			if row.Status == http.StatusOK && row.Error == "" {
				answered++
				own := row.lag
				if r.otherApp {
					own -= row.appTook
				}
				worst = max(worst, own)
			}
		}
	}
	t.line("%s %s", s.Mark(r.OK), s.Bold(fmt.Sprintf("%d of %d came out as stated, in %s.", good, len(r.Rows), inSeconds(r.TookMS))))
	if answered > 0 {
		t.line("  %s", fmt.Sprintf("With lastcall %d of %d requests were answered, and no pod stayed more than %d ms",
			answered, ours, max(1, worst.Round(time.Millisecond).Milliseconds())))
		t.line("  after the last byte%s.", minimumText(r))
	}
	if told > 0 {
		t.line("  %s", fmt.Sprintf("%d longer than the grace period: told so in time, and named in the report.", told))
	}
	if note := lag.Note(time.Duration(r.AllowanceMS * float64(time.Millisecond))); note != "" {
		t.line("  %s", s.Dim(console.Cut(note, console.Width-2)))
	}
	if r.Logs != "" {
		t.line("  %s", s.Dim("What everything wrote is in "+r.Logs+"."))
	}
}

// minimumText is said when a minimum drain outlasts the request.
func minimumText(r *Result) string {
	if r.otherApp {
		return ", the app's own time to end left out"
	}
	for _, row := range r.Rows {
		if row.lastcall && row.LastByteMS < 5000 && row.Status == http.StatusOK {
			return " and the minimum drain (5 s)"
		}
	}
	return ""
}
