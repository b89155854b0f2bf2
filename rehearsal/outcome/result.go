// Package outcome is the result of rehearsing a service: the losses, why and when. It is written as a table and as
// JSON of a published schema.
package outcome

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Schema is the address of the schema of Result's JSON.
const Schema = "https://raw.githubusercontent.com/lastcall-dev/lastcall/main/docs/schema/rehearsal-service-v1.json"

// Result is the outcome of a rehearsal.
type Result struct {
	Schema        string    `json:"$schema"`
	OK            bool      `json:"ok"` // the first row lost nothing
	App           string    `json:"app"`
	Workload      string    `json:"workload,omitempty"`
	PID1          string    `json:"pid_1,omitempty"` // of the app: "namespace", or "imitated"
	Hook          string    `json:"pre_stop"`
	GraceMS       int64     `json:"grace_ms"`
	PropagationMS [2]int64  `json:"propagation_ms"` // of the fastest and of the slowest client
	Requests      []Kind    `json:"requests"`
	Repeat        int       `json:"repeat"`
	TookMS        int64     `json:"took_ms"`
	Rows          []Row     `json:"rows"` // one for each strategy; the first decides
	Notes         []string  `json:"notes,omitempty"`
	Logs          string    `json:"logs,omitempty"`
	Began         time.Time `json:"began"`
}

// Kind is a kind of request.
type Kind struct {
	Request string `json:"request"`
	Weight  int    `json:"weight"`
	TookMS  int64  `json:"took_ms"` // undisturbed, rounded up; 0 without an end
	Bytes   int64  `json:"bytes"`
}

// Row is the outcome of one strategy. Times are in milliseconds from the deletion of the old pod.
type Row struct {
	Strategy string                  `json:"strategy"`
	Words    string                  `json:"words"`
	Load     float64                 `json:"load_per_s"`
	Requests int                     `json:"requests"`
	Lost     int                     `json:"lost"`
	Faults   int                     `json:"faults"` // failures that the rollout did not cause
	Reasons  map[traffic.Failure]int `json:"lost_by"`
	Losses   []Loss                  `json:"losses,omitempty"`
	Runs     []Round                 `json:"runs"`
}

// Round is one rollout.
type Round struct {
	HookEndMS int64  `json:"hook_end_ms"` // -1: no hook
	TermMS    int64  `json:"sigterm_ms"`  // -1: not sent, the app had ended
	KillMS    int64  `json:"sigkill_ms"`  // -1: not sent
	GoneMS    int64  `json:"gone_ms"`     // the pod's last container has ended
	EndedBy   string `json:"ended_by"`    // of the app: "exit 0", "SIGTERM", "SIGKILL"
	HookError string `json:"hook_error,omitempty"`
	Cause     string `json:"cause,omitempty"` // a property of the app, such as that it ignores SIGTERM

	Pods []Pod `json:"pods,omitempty"` // if there are several
}

// Loss is a group of requests that were lost in the same way.
type Loss struct {
	Request string          `json:"request"`
	Reason  traffic.Failure `json:"reason"`
	Phase   Phase           `json:"phase"`
	Count   int             `json:"count"`
	FirstMS int64           `json:"first_ms"`
	LastMS  int64           `json:"last_ms"`
	Detail  string          `json:"detail,omitempty"` // of the first
	Fix     string          `json:"fix"`

	// Pods are those that were ending when the first of the requests was lost, if there are several: one of them lost
	// it.
	Pods []string `json:"pods,omitempty"`
}

// Pod is the end of one pod of several, in milliseconds from the beginning of the rollout. -1: it did not happen.
type Pod struct {
	Name      string `json:"pod"`
	DeletedMS int64  `json:"deleted_ms"` // its deletion began
	TermMS    int64  `json:"sigterm_ms"`
	GoneMS    int64  `json:"gone_ms"`
	EndedBy   string `json:"ended_by"` // "exit 0", "SIGKILL"
}

// GoneMS is the longest time from the deletion to the pod's end.
func (row Row) GoneMS() (longest int64) {
	for _, r := range row.Runs {
		longest = max(longest, r.GoneMS)
	}
	return longest
}

// EndedBy is how the app ended in the last run.
func (row Row) EndedBy() string { return row.Runs[len(row.Runs)-1].EndedBy }

// Passed reports whether the first strategy lost nothing.
func (r *Result) Passed() bool { return r.OK }

// Sizes of the table, columns. It fits a terminal of 80.
const (
	titleWidth = 24
	cellWidth  = 18
	inOneTable = 3 // strategies side by side
)

// WriteTable writes the result as a table of the strategies side by side, at most 80 columns wide.
func (r *Result) WriteTable(w io.Writer, s console.Style) error {
	t := table{console.NewTable(w, s)}
	t.head(r)
	for i := 0; i < len(r.Rows); i += inOneTable {
		t.columns(r.Rows[i:min(i+inOneTable, len(r.Rows))])
	}
	for _, row := range r.Rows {
		t.losses(row)
		t.pods(row)
	}
	t.foot(r)
	return t.Flush()
}

type table struct{ *console.Table }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (t table) head(r *Result) {
	name := cmp.Or(r.Workload, "the app")
	title := fmt.Sprintf("A pod of %s is replaced by another under load.", name)
	if len(r.Rows[0].Runs[0].Pods) > 0 {
		title = fmt.Sprintf("Pods of %s end under load.", name)
	}
	t.Line("%s", t.Bold(console.Cut(terminal.Printable(title), t.Width())))
	dim := func(format string, args ...any) {
		t.Line("%s", t.Dim(console.Cut(terminal.Printable(fmt.Sprintf(format, args...)), t.Width())))
	}
	if r.App != "" { // of a rollout it is built in
		dim("app: %s", r.App)
	}
	dim("grace period %s; %s; clients learn of the change after %s to %s", terminal.Seconds(ms(r.GraceMS)), r.Hook,
		terminal.Seconds(ms(r.PropagationMS[0])), terminal.Seconds(ms(r.PropagationMS[1])))
	for _, k := range r.Requests {
		took := "without an end"
		if k.TookMS > 0 {
			took = fmt.Sprintf("undisturbed in %s, %d bytes", terminal.Measured(ms(k.TookMS)), k.Bytes)
		}
		dim("%s: weight %d, %s", k.Request, k.Weight, took)
	}
	for _, n := range r.Notes {
		t.Text("", "note: %s", n)
	}
	t.Line("")
}

func (t table) columns(rows []Row) {
	one := func(title string, value func(Row) string, paint func(Row, string) string) {
		text := console.Left(title, titleWidth)
		for _, row := range rows {
			cell := console.Right(value(row), cellWidth)
			if paint != nil {
				cell = paint(row, cell)
			}
			text += cell
		}
		t.Line("%s", text)
	}
	one("", func(r Row) string { return r.Strategy }, func(_ Row, text string) string { return t.Bold(text) })
	one("requests", func(r Row) string { return strconv.Itoa(r.Requests) }, nil)
	one("lost", func(r Row) string { return strconv.Itoa(r.Lost) }, func(r Row, text string) string {
		if r.Lost > 0 {
			return t.Bad(text)
		}
		return t.Good(text)
	})
	reasons := map[traffic.Failure]int{}
	for _, row := range rows {
		maps.Copy(reasons, row.Reasons)
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		one("  "+string(reason), func(r Row) string { return strconv.Itoa(r.Reasons[reason]) }, nil)
	}
	one("pod gone after", func(r Row) string { return terminal.Measured(ms(r.GoneMS())) }, nil)
	one("the app ended by", Row.EndedBy, nil)
	one("load", func(r Row) string { return fmt.Sprintf("%.1f/s", r.Load) }, nil)
	t.Line("")
}

func (t table) losses(row Row) {
	notes := row.endings()
	if len(row.Losses) == 0 && len(notes) == 0 {
		return
	}
	t.Line("%s", t.Bold(row.Strategy)+t.Dim(": "+console.Cut(row.Words, t.Width()-2-len(row.Strategy))))
	for _, n := range notes {
		t.Text("  ", "%s", n)
	}
	for _, l := range row.Losses {
		t.Text("  ", "%d × %s: %s %s (%s)", l.Count, l.Request, l.Reason, l.Phase, l.Span())
		if len(l.Pods) > 0 {
			t.Text("      ", "pods that were ending, the likeliest first: %s", strings.Join(l.Pods, ", "))
		}
		if !slices.Contains(notes, l.Fix) {
			t.Text("      ", "%s", l.Fix)
		}
	}
	t.Line("")
}

// endings are the findings about the runs' ends, each once.
func (row Row) endings() (all []string) {
	for _, run := range row.Runs {
		if run.HookError != "" {
			all = append(all, "the hook failed: "+run.HookError)
		}
		if run.Cause != "" {
			all = append(all, run.Cause)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Span is when the requests were lost, in words; from the deletion.
func (l Loss) Span() string {
	first, last := terminal.Measured(ms(l.FirstMS)), terminal.Measured(ms(l.LastMS))
	if first == last {
		return "at " + first
	}
	return "from " + first + " to " + last
}

func (t table) foot(r *Result) {
	first := r.Rows[0]
	text := fmt.Sprintf("%s lost %d of %d requests, in %s.",
		first.Strategy, first.Lost, first.Requests, terminal.Measured(ms(r.TookMS)))
	t.Line("%s %s", t.Mark(r.OK), t.Bold(text))
	if !r.OK {
		for _, row := range r.Rows[1:] {
			if row.Lost == 0 {
				t.Line("  %s lost none of %d.", row.Strategy, row.Requests)
			}
		}
	}
	if first.Faults > 0 {
		t.Text("  ", "%d more failed without the rollout: the app cannot serve this load; lower --load.", first.Faults)
	}
	if r.Logs != "" {
		t.Line("  %s", t.Dim("All logs are in "+r.Logs+"."))
	}
}

// Sizes of the table of pods, columns.
const (
	podWidth  = 30
	timeWidth = 9
	maxPods   = 20 // that the table lists
)

// pods writes the ends of the pods of the row's last run, if there are several.
func (t table) pods(row Row) {
	pods := row.Runs[len(row.Runs)-1].Pods
	if len(pods) == 0 {
		return
	}
	t.Line("%s", t.Bold("Pods that ended")+t.Dim(": deleted in the rollout; the rest after the deletion"))
	t.podLine("", "deleted", "SIGTERM", "gone")
	after := func(at, from int64) string {
		if at < 0 {
			return "-"
		}
		return terminal.Measured(ms(max(0, at-from)))
	}
	for _, p := range pods[:min(len(pods), maxPods)] {
		t.podLine(p.Name, after(p.DeletedMS, 0), after(p.TermMS, p.DeletedMS), after(p.GoneMS, p.DeletedMS))
	}
	if n := len(pods) - maxPods; n > 0 {
		t.Line("%s", t.Dim(fmt.Sprintf("and %d more, which the JSON has", n)))
	}
	t.Line("")
}

func (t table) podLine(name string, cells ...string) {
	text := console.Left(console.Cut(name, podWidth-1), podWidth)
	for _, c := range cells {
		text += console.Right(c, timeWidth)
	}
	t.Line("%s", text)
}
