package peers

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// Columns of the tables.
const (
	nameWidth   = 24
	answerWidth = 19
	goneWidth   = 14
	lagWidth    = 13
	lostWidth   = 12
)

// headings of the scenes.
var headings = map[Scene]string{
	Request:   "a request in flight, and ten more within the next second",
	Idle:      "an idle pod",
	KeepAlive: "a request in flight, and another client's idle keep-alive connection",
}

// WriteTable writes the result as tables, at most console.Width columns wide.
func (r *Result) WriteTable(w io.Writer, s console.Style) error {
	out := bufio.NewWriter(w)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	line("%s", s.Bold("How other tools end a real Envoy."))
	line("%s", s.Dim(fmt.Sprintf("a request takes %s and up to %s more; apps in the pod close their listener at SIGTERM and finish",
		console.Round(time.Duration(r.DelayMS)*time.Millisecond), console.Round(spread))))
	for _, scene := range Scenes() {
		line("")
		line("%s", s.Heading(headings[scene]))
		answer, lag := "the client got", "of it idle"
		if scene == Idle {
			answer, lag = "", ""
		}
		line("  %s%s%s%s%s  %s", console.Left("peer", nameWidth), console.Left(answer, answerWidth),
			console.Right("pod gone", goneWidth), console.Right(lag, lagWidth), console.Right("lost", lostWidth), "ended by")
		for _, row := range r.Rows {
			if row.Scene == scene {
				row.write(line, s)
			}
		}
	}
	line("")
	for _, row := range r.Rows {
		if row.Scene == Request {
			line("%s", s.Dim(console.Cut(console.Left(row.Peer, nameWidth-2)+row.Words, console.Width)))
		}
	}
	line("")
	good := 0
	for _, row := range r.Rows {
		if row.OK {
			good++
		}
	}
	line("%s %s", s.Mark(r.OK), s.Bold(fmt.Sprintf("%d of %d as their rules predict, in %s.", good, len(r.Rows), console.Millis(r.TookMS))))
	if r.Logs != "" {
		line("  %s", s.Dim("All logs are in "+r.Logs+"."))
	}
	return out.Flush()
}

func (r Row) write(line func(string, ...any), s console.Style) {
	answer, lag := console.Left(console.Answer(r.Status, r.Error != "", r.TookMS), answerWidth), console.Lag(r.LagMS)
	switch {
	case r.Scene == Idle: // its client sends no further request
		answer, lag = console.Left("", answerWidth), ""
	case r.Status == http.StatusOK && r.Error == "":
		answer = s.Good(answer)
	default:
		answer = s.Bad(answer)
	}
	lost := console.Right("", lostWidth)
	if r.Requests > 0 {
		lost = console.Right(fmt.Sprintf("%d of %d", r.Lost, r.Requests), lostWidth)
		if r.Lost > 0 {
			lost = s.Bad(lost)
		}
	}
	gone, end := console.Millis(r.GoneMS), "itself"
	switch {
	case r.Unfinished:
		gone, end = "> "+gone, s.Bad("still there")
	case r.Killed:
		end = s.Bad("SIGKILL")
	}
	line("%s %s%s%s%s%s  %s", s.Mark(r.OK), console.Left(r.Peer, nameWidth), answer,
		console.Right(gone, goneWidth), console.Right(lag, lagWidth), lost, end)
	for _, c := range r.Checks {
		if !c.OK {
			line("    %s %s", s.Mark(false), console.Cut(c.What+": expected "+c.Want+", got "+c.Got, console.Width-6))
		}
	}
}
