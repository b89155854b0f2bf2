package rehearsal

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
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
