package rehearsal

import (
	"cmp"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Result is the outcome of the experiment.
type Result struct {
	OK      bool   `json:"ok"` // every row that was judged is as expected, and one was
	Path    string `json:"path"`
	GraceMS int64  `json:"grace_ms"`
	Proxy   string `json:"proxy"` // of the sidecars
	// IstioAgent ends the sidecars of Istio's rows: Istio's own pilot-agent, or lastcall's imitation of it.
	IstioAgent string  `json:"istio_agent"`
	TookMS     float64 `json:"took_ms"`
	Rows       []Row   `json:"rows"`
	Logs       string  `json:"logs,omitempty"`

	// AllowanceMS is the largest of the rows'.
	AllowanceMS float64 `json:"allowance_ms"`

	ownNumbers bool // other durations than the experiment's: the table shows the expectation
}

// Row is the outcome of one strategy. Times are in milliseconds; those with since in their names are from the
// scale-down.
type Row struct {
	Strategy string  `json:"strategy"`
	Group    string  `json:"group"`
	Words    string  `json:"words"`
	Expected string  `json:"expected"`
	OK       bool    `json:"ok"`
	Checks   []check `json:"checks"`

	// Unjudged is set if only times are not as expected, on a machine that is too busy to judge them.
	Unjudged bool `json:"not_judged,omitempty"`

	Status     int     `json:"status"` // 0: no response
	Error      string  `json:"error,omitempty"`
	TookMS     float64 `json:"took_ms"` // as measured by the client
	LastByteMS float64 `json:"last_byte_since_ms"`
	Body       string  `json:"body,omitempty"` // of a response other than 200

	Killed      bool          `json:"killed"`
	StayedMS    float64       `json:"stayed_ms"`
	LagMS       float64       `json:"after_last_byte_ms"`
	AllowanceMS float64       `json:"allowance_ms"` // how much later events were allowed to be, on a busy machine
	Report      *drain.Report `json:"report,omitempty"`

	lastcall bool
	istio    bool
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// result is the result of all rows.
func (p *experiment) result(path string, rows []Row) *Result {
	o := p.options
	res := &Result{
		OK: true, Path: path,
		GraceMS: o.Grace.Milliseconds(),
		Proxy:   cmp.Or(o.Proxy, strategy.ProxyPipe), Logs: o.KeepLogs,
		ownNumbers: o.Delay != DefaultDelay || o.Grace != strategy.DefaultGrace,
	}
	res.IstioAgent = "imitated by lastcall agent --compat istio"
	if agent := p.env.Programs.PilotAgent; agent != "" {
		res.IstioAgent = strings.TrimSpace("pilot-agent " + strategy.PilotAgentVersion(agent))
	}
	judged := false
	for _, row := range rows {
		judged = judged || !row.Unjudged
		res.OK = res.OK && (row.OK || row.Unjudged)
		res.AllowanceMS = max(res.AllowanceMS, row.AllowanceMS)
		res.Rows = append(res.Rows, row)
	}
	res.OK = res.OK && judged
	res.TookMS = milliseconds(time.Since(p.began))
	return res
}

func (p *experiment) judge(r *row, path string) Row {
	seen := r.end.Gone()
	if r.answer.Last.After(seen) {
		seen = r.answer.Last
	}
	allowance, quiet := p.meter.allowance(r.end.Began, seen)
	c := circumstances{
		left:      p.options.Delay - r.end.Began.Sub(r.answer.Began),
		grace:     p.options.Grace,
		app:       r.strategy.App,
		envoy:     strategy.UsesEnvoy(p.options.Proxy),
		allowance: allowance,
	}
	e, checks := judge(r, expect(r.strategy, c), path, c)
	words := r.strategy.Words
	if c.envoy && r.strategy.Envoy != "" {
		words = r.strategy.Envoy
	}
	row := Row{
		Strategy: r.strategy.Name, Group: r.strategy.Group, Words: words,
		Expected: e.String(), OK: failures(checks) == 0, Checks: checks, Unjudged: !quiet && isLateOnly(checks),
		Status: r.answer.Status, Error: r.answer.Detail,
		TookMS: milliseconds(r.answer.Last.Sub(r.answer.Began)), LastByteMS: milliseconds(r.lastByte()),
		Killed: r.end.Killed(), Report: r.report,
		StayedMS: milliseconds(r.stayed()), LagMS: milliseconds(r.stayed() - r.lastByte()),
		AllowanceMS: milliseconds(c.allowance),
		lastcall:    r.strategy.Sidecar.IsLastcall(), istio: r.strategy.Sidecar.IsIstio(),
	}
	if r.answer.Status != 200 {
		row.Body = string(r.answer.Tail)
	}
	return row
}

// Passed reports whether every row is as expected.
func (r *Result) Passed() bool { return r.OK }
