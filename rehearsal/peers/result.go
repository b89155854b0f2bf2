package peers

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Result is the outcome of all measurements.
type Result struct {
	OK      bool    `json:"ok"` // every row is as expected
	DelayMS int64   `json:"delay_ms"`
	LimitMS int64   `json:"limit_ms"`
	TookMS  float64 `json:"took_ms"`
	Rows    []Row   `json:"rows"`
	Logs    string  `json:"logs,omitempty"`
}

// Row is the outcome of one peer in one scene. Times are in milliseconds, from the start of the pod's termination unless
// noted otherwise.
type Row struct {
	Peer     string  `json:"peer"`
	Scene    Scene   `json:"scene"`
	Words    string  `json:"words"`
	Source   string  `json:"source"`
	GraceMS  int64   `json:"grace_ms"`
	Expected string  `json:"expected"`
	OK       bool    `json:"ok"`
	Checks   []check `json:"checks"`

	Status     int     `json:"status"` // 0: no response, or no request
	Error      string  `json:"error,omitempty"`
	TookMS     float64 `json:"took_ms"` // of the request, measured by the client
	LastByteMS float64 `json:"last_byte_ms"`
	IdleEndMS  float64 `json:"idle_connection_ended_ms,omitempty"`
	Lost       int     `json:"lost"`
	Requests   int     `json:"requests"`

	GoneMS float64 `json:"gone_ms"`
	// LagMS is from the end of the last request's connection to the pod's end; of
	// an idle pod the whole time.
	LagMS float64 `json:"lag_ms"`
	// AllowanceMS is how much later events were allowed to be, on a busy machine.
	AllowanceMS float64 `json:"allowance_ms"`

	Killed     bool             `json:"killed"`
	Unfinished bool             `json:"still_there"`
	Report     *strategy.Report `json:"report,omitempty"`
}

// check is one expectation and its outcome.
type check struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

func result(rows []*row, o Options, took time.Duration) *Result {
	res := &Result{
		OK: true, DelayMS: o.Delay.Milliseconds(), LimitMS: o.Limit.Milliseconds(),
		TookMS: milliseconds(took), Logs: o.KeepLogs,
	}
	for _, r := range rows {
		row := r.result(o.Limit)
		res.OK = res.OK && row.OK
		res.Rows = append(res.Rows, row)
	}
	return res
}

func (r *row) result(limit time.Duration) Row {
	s := r.peer.expect(circumstances{scene: r.scene, left: r.left(), grace: r.peer.grace, app: r.peer.app})
	lost, of := r.lost()
	out := Row{
		Peer: r.peer.Name, Scene: r.scene, Words: r.peer.Words, Source: r.peer.Source,
		GraceMS: r.peer.grace.Milliseconds(), Expected: s.String(), OK: true, Checks: r.judge(s, limit),
		Status: r.answer.status, Lost: lost, Requests: of,
		GoneMS: milliseconds(r.stayed()), LagMS: milliseconds(r.stayed() - r.lastByte()),
		AllowanceMS: milliseconds(r.allowance), Killed: r.killed(), Unfinished: r.unfinished, Report: r.report,
	}
	if r.scene == Idle {
		out.Expected = "pod gone " + s.gone.String()
	} else {
		out.TookMS, out.LastByteMS = milliseconds(r.answer.last.Sub(r.answer.asked)), milliseconds(r.lastByte())
	}
	if r.idle != nil {
		out.IdleEndMS = milliseconds(r.idle.end.Sub(r.began))
	}
	if r.answer.err != nil {
		out.Error = r.answer.err.Error()
	}
	for _, c := range out.Checks {
		out.OK = out.OK && c.OK
	}
	return out
}

// judge compares a row with what is expected of it.
func (r *row) judge(s expectation, limit time.Duration) []check {
	var out []check
	add := func(ok bool, what, want, got string) { out = append(out, check{what, want, got, ok}) }
	if r.scene != Idle && !r.tooClose(s) {
		words := map[bool]string{true: "lost", false: "answered"}
		add(s.lost != r.answer.good(), "the request", words[s.lost], words[!r.answer.good()])
	}
	if s.gone.From > limit {
		add(r.unfinished, "the pod", fmt.Sprintf("still there after %s", console.Seconds(limit)), "gone after "+console.Seconds(r.stayed()))
	} else {
		gone := s.gone
		gone.To = min(gone.To, limit)
		add(gone.Holds(r.stayed(), slack+r.allowance), "the pod was gone", s.gone.String(), "after "+console.Seconds(r.stayed()))
	}
	if s.lag > 0 {
		lag := r.stayed() - max(r.lastByte(), strategy.MinimumDrain)
		add(lag <= s.lag+r.allowance, "it stayed after the last byte and the minimum drain", "at most "+(s.lag+r.allowance).Round(time.Millisecond).String(), lag.Round(100*time.Microsecond).String())
	}
	if s.late && r.scene == Request {
		add(r.lateLost == 0, "requests in the next second", "none lost", fmt.Sprintf("%d of %d lost", r.lateLost, lateRequests))
	}
	return out
}

// tooClose reports whether the request ended so near to the moment that would cut it that either outcome is right.
func (r *row) tooClose(s expectation) bool {
	return s.cut > 0 && (r.left()-s.cut).Abs() < tooClose+r.allowance
}

// Passed reports whether every row is as expected.
func (r *Result) Passed() bool { return r.OK }
