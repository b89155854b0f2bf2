// Package outcome is the result of rehearsing a service: the losses, why and when. It is written as a table and as
// JSON of a published schema.
package outcome

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
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
	URL           string    `json:"url,omitempty"`   // of a service in a cluster
	PID1          string    `json:"pid_1,omitempty"` // how the app was PID 1: "namespace", or "imitated"; not in a cluster
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
	TookMS  int64  `json:"took_ms"` // undisturbed; 0 without an end
	Bytes   int64  `json:"bytes"`
}

// Kinds describes the requests of a load that was measured.
func Kinds(l *load.Load) (all []Kind) {
	for i, r := range l.Requests {
		all = append(all, Kind{r.String(), r.Weight, l.References[i].Took.Milliseconds(), l.References[i].Bytes})
	}
	return all
}

// Row is the outcome of one strategy. Times are in milliseconds from the deletion of the old pod.
type Row struct {
	Strategy string                  `json:"strategy"`
	Words    string                  `json:"words"`
	Load     float64                 `json:"load_per_s"`
	Requests int                     `json:"requests"`
	Lost     int                     `json:"lost"`
	Short    int                     `json:"silently_short"` // of the lost
	Faults   int                     `json:"faults"`         // failures that the rollout did not cause
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

	// Pods are those that were ending when the first of the requests was lost, if there are several: one of them lost it.
	Pods []string `json:"pods,omitempty"`
}

// Pod is the end of one pod of several, in milliseconds from the beginning of the rollout. -1: it is unknown.
type Pod struct {
	Name      string `json:"pod"`
	DeletedMS int64  `json:"deleted_ms"` // its deletion began
	TermMS    int64  `json:"sigterm_ms"` // in a cluster computed from a preStop hook of known length
	EndedMS   int64  `json:"ended_ms"`   // its containers have ended
	GoneMS    int64  `json:"gone_ms"`
	GraceMS   int64  `json:"grace_ms"`
	EndedBy   string `json:"ended_by"` // "exit 0", "SIGKILL"; empty: unknown
}

// lose counts a request that was lost alone.
func (row *Row) lose(lost Loss) {
	if lost.Phase == Serving || lost.Phase == Elsewhere {
		row.Faults++
	} else {
		row.Lost++
		row.Reasons[lost.Reason]++
		if lost.Reason == traffic.Short {
			row.Short++
		}
	}
	for i := range row.Losses {
		l := &row.Losses[i]
		if l.Request == lost.Request && l.Reason == lost.Reason && l.Phase == lost.Phase {
			l.Count++
			l.FirstMS, l.LastMS = min(l.FirstMS, lost.FirstMS), max(l.LastMS, lost.LastMS)
			return
		}
	}
	row.Losses = append(row.Losses, lost)
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

// Phase is a part of an old pod's end.
type Phase string

// The phases.
const (
	Serving     Phase = "before the deletion"
	InHook      Phase = "while preStop ran"
	Terminating Phase = "after SIGTERM"
	Killed      Phase = "at SIGKILL"
	Gone        Phase = "after the pod's end"
	Elsewhere   Phase = "on the new pod"

	// Of a cluster, where a hook's end may be unknown.
	WhileEnding Phase = "while the pod ended" // in the hook, or after SIGTERM
	Between     Phase = "while no pod ended"  // of a rollout that had begun
)
