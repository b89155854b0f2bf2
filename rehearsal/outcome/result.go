package outcome

import (
	"cmp"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
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
	PreStop       string    `json:"pre_stop"`
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
	Strategy string              `json:"strategy"`
	Words    string              `json:"words"`
	Load     float64             `json:"load_per_s"`
	Requests int                 `json:"requests"`
	Lost     int                 `json:"lost"`
	Short    int                 `json:"silently_short"` // of the lost
	Faults   int                 `json:"faults"`         // failures that the rollout did not cause
	Reasons  map[load.Reason]int `json:"lost_by"`
	Losses   []Loss              `json:"losses,omitempty"`
	Runs     []Round             `json:"runs"`
}

// Round is one rollout.
type Round struct {
	HookEndMS int64  `json:"hook_end_ms"` // -1: no hook
	TermMS    int64  `json:"sigterm_ms"`  // -1: not sent, the app had ended
	KillMS    int64  `json:"sigkill_ms"`  // -1: not sent
	GoneMS    int64  `json:"gone_ms"`     // the pod's last container has ended
	EndedBy   string `json:"ended_by"`    // of the app: "exit 0", "SIGTERM", "SIGKILL"
	HookError string `json:"hook_error,omitempty"`
	Cause     string `json:"cause,omitempty"` // a property of the app that shows at its end, such as that it ignores SIGTERM

	Pods []Pod `json:"pods,omitempty"` // if there are several

	// Sendings are the requests that the page draws: the first ones sent, with all that were lost first.
	Sendings []Sending `json:"sendings"`
}

// Sending is one request.
type Sending struct {
	Request int         `json:"request"` // index in the result's requests
	Client  int         `json:"client"`
	Conn    int64       `json:"connection"` // of the client, from 1; 0: none
	OnNew   bool        `json:"on_new_pod"`
	FromMS  int64       `json:"from_ms"`
	ToMS    int64       `json:"to_ms"`
	Status  int         `json:"status"`
	Reason  load.Reason `json:"lost_by,omitempty"`
	Phase   Phase       `json:"phase,omitempty"`
	Detail  string      `json:"detail,omitempty"`
}

// Loss is a group of requests that were lost in the same way.
type Loss struct {
	Request string      `json:"request"`
	Reason  load.Reason `json:"reason"`
	Phase   Phase       `json:"phase"`
	Count   int         `json:"count"`
	FirstMS int64       `json:"first_ms"`
	LastMS  int64       `json:"last_ms"`
	Detail  string      `json:"detail,omitempty"` // of the first
	Fix     string      `json:"fix"`

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

// maxSendings is how many requests of a run the result lists.
const maxSendings = 400

// bounded limits a run's list, and keeps those that were lost.
func bounded(run Round) Round {
	if len(run.Sendings) > maxSendings {
		slices.SortStableFunc(run.Sendings, func(a, b Sending) int { return cmp.Compare(rank(a), rank(b)) })
		run.Sendings = run.Sendings[:maxSendings]
		slices.SortStableFunc(run.Sendings, func(a, b Sending) int { return cmp.Compare(a.FromMS, b.FromMS) })
	}
	return run
}

func rank(s Sending) int {
	switch {
	case s.Reason != "":
		return 0
	case !s.OnNew:
		return 1
	}
	return 2
}

// lose counts a lost request. request is its kind in words, fix what would have saved it, pods are Loss.Pods.
func (row *Row) lose(s Sending, request, fix string, pods []string) {
	if s.Phase == Serving || s.Phase == Elsewhere {
		row.Faults++
	} else {
		row.Lost++
		row.Reasons[s.Reason]++
		if s.Reason == load.Short {
			row.Short++
		}
	}
	for i := range row.Losses {
		l := &row.Losses[i]
		if l.Request == request && l.Reason == s.Reason && l.Phase == s.Phase {
			l.Count++
			l.FirstMS, l.LastMS = min(l.FirstMS, s.ToMS), max(l.LastMS, s.ToMS)
			return
		}
	}
	row.Losses = append(row.Losses, Loss{request, s.Reason, s.Phase, 1, s.ToMS, s.ToMS, s.Detail, fix, pods})
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

// isCluster reports whether the pods were those of a cluster.
func (r *Result) isCluster() bool { return r.URL != "" }

// Passed reports whether the first strategy lost nothing.
func (r *Result) Passed() bool { return r.OK }
