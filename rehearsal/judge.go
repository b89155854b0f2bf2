package rehearsal

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// check is one expectation and its outcome.
type check struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`

	timed bool // of a time, which a busy machine may change
}

// judge compares a row with its expectation: with the closest alternative, where there are two.
func judge(r *row, alternatives []expectation, path string, c circumstances) (expectation, []check) {
	var best expectation
	var checks []check
	fewest := -1
	for _, e := range alternatives {
		list := judgeOne(r, e, path, c)
		if n := failures(list); fewest < 0 || n < fewest {
			best, checks, fewest = e, list, n
		}
	}
	return best, checks
}

func failures(checks []check) int {
	n := 0
	for _, c := range checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// isLateOnly reports whether all that failed are times.
func isLateOnly(checks []check) bool {
	for _, c := range checks {
		if !c.OK && !c.timed {
			return false
		}
	}
	return failures(checks) > 0
}

func judgeOne(r *row, e expectation, path string, c circumstances) []check {
	var out []check
	add := func(ok bool, what, want, got string) {
		out = append(out, check{What: what, Want: want, Got: got, OK: ok})
	}
	addTime := func(ok bool, what, want, got string) { out = append(out, check{what, want, got, ok, true}) }

	got := outcome(r.answer)
	wanted := http.StatusOK
	if e.lost {
		wanted = http.StatusServiceUnavailable
	}
	add(r.answer.Status == wanted && r.answer.Detail == "", "the client got", fmt.Sprint(wanted), got)
	addTime(e.answered.holds(r.lastByte(), slack+c.allowance), "the request ended", e.answered.String(),
		"after "+terminal.Measured(r.lastByte()))
	if e.body != "" {
		add(string(r.answer.Tail) == e.body, "body",
			fmt.Sprintf("%q (%d bytes)", e.body, len(e.body)),
			fmt.Sprintf("%q (%d bytes)", r.answer.Tail, len(r.answer.Tail)))
	}
	if e.log != "" {
		add(strings.Contains(r.logLine, e.log), "the gateway's log line", "… "+e.log+" …", r.logLine)
	}

	addTime(e.gone.holds(r.stayed(), slack+c.allowance), "the pod was gone", e.gone.String(),
		"after "+terminal.Measured(r.stayed()))
	if e.lag > 0 {
		lag, most := r.stayed()-max(r.lastByte(), e.stays), e.lag+c.allowance
		addTime(lag <= most && lag >= -transit-c.allowance, "the pod stayed after the last byte and the minimum drain",
			"0s to "+most.Round(time.Millisecond).String(), lag.Round(100*time.Microsecond).String())
	}
	if e.killed != nil {
		words := map[bool]string{true: "by SIGKILL", false: "by itself"}
		add(r.end.Killed() == *e.killed, "the pod's end", words[*e.killed], words[r.end.Killed()])
	}
	if e.appAfter {
		after := r.end.App.Terminated.Sub(r.answer.Last)
		addTime(after >= -transit-c.allowance, "the app's SIGTERM", "after the last byte",
			fmt.Sprintf("%v after it", after.Round(100*time.Microsecond)))
	}
	if e.appAfter || e.named {
		add(r.end.App.HookError == nil, "the app's preStop", "no error", fmt.Sprint(r.end.App.HookError))
		add(r.end.SidecarExit == "exit 0", "the sidecar's end", "exit 0", r.end.SidecarExit)
		out = append(out, judgeReport(r, e, path)...)
	}
	if e.idle {
		add(r.idle.closed == len(r.idle.conns) && len(r.idle.conns) > 0, "idle connections",
			fmt.Sprintf("%d closed in an orderly way", len(r.idle.conns)),
			fmt.Sprintf("%d closed in an orderly way %v", r.idle.closed, r.idle.broken))
	}
	return out
}

func judgeReport(r *row, e expectation, path string) []check {
	verdict, open := drain.Clean, "nothing"
	if e.named {
		verdict, open = drain.Cut, "GET "+path
	}
	if e.unnamed {
		open = "a client"
	}
	if r.report == nil {
		return []check{{What: "the sidecar's report", Want: string(verdict), Got: "none"}}
	}
	got := r.report.Verdict
	out := []check{{What: "the report's verdict", Want: string(verdict), Got: string(got), OK: got == verdict}}
	requests := make([]string, len(r.report.Open))
	for i, c := range r.report.Open {
		requests[i] = c.Request
		if e.unnamed && c.Request == "" && c.Peer != "" {
			requests[i] = "a client"
		}
	}
	named := cmp.Or(strings.Join(requests, ", "), "nothing")
	return append(out, check{What: "the report names as cut", Want: open, Got: named, OK: named == open})
}

// outcome is an answer in short: "200", "503", "no response: …".
func outcome(a traffic.Outcome) string {
	switch {
	case a.Status == 0:
		return "no response: " + a.Detail
	case a.Detail != "":
		return fmt.Sprintf("%d, truncated: %s", a.Status, a.Detail)
	}
	return fmt.Sprint(a.Status)
}
