package service

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"time"
)

// Schema is the address of the schema of Result's JSON.
const Schema = "https://lastcall.dev/schema/rehearsal-service-v1.json"

// Result is the outcome of a rehearsal.
type Result struct {
	Schema        string    `json:"$schema"`
	OK            bool      `json:"ok"` // the first row lost nothing
	App           string    `json:"app"`
	Workload      string    `json:"workload,omitempty"`
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

// Row is the outcome of one strategy. Times are in milliseconds from the deletion of the old pod.
type Row struct {
	Strategy string         `json:"strategy"`
	Words    string         `json:"words"`
	Load     float64        `json:"load_per_s"`
	Requests int            `json:"requests"`
	Lost     int            `json:"lost"`
	Short    int            `json:"silently_short"` // of the lost
	Faults   int            `json:"faults"`         // failures that the rollout did not cause
	Reasons  map[Reason]int `json:"lost_by"`
	Losses   []Loss         `json:"losses,omitempty"`
	Runs     []Round        `json:"runs"`
}

// Round is one deletion of a pod.
type Round struct {
	HookEndMS int64  `json:"hook_end_ms"` // -1: no hook
	TermMS    int64  `json:"sigterm_ms"`  // -1: not sent, the app had ended
	KillMS    int64  `json:"sigkill_ms"`  // -1: not sent
	GoneMS    int64  `json:"gone_ms"`     // the pod's last container has ended
	EndedBy   string `json:"ended_by"`    // of the app: "exit 0", "SIGTERM", "SIGKILL"
	HookError string `json:"hook_error,omitempty"`

	// Sendings are the requests that the page draws: the first ones sent, with all that were lost first.
	Sendings []Sending `json:"sendings"`
}

// Sending is one request.
type Sending struct {
	Request int    `json:"request"` // index in the result's requests
	Client  int    `json:"client"`
	Conn    int64  `json:"connection"` // of the client, from 1; 0: none
	OnNew   bool   `json:"on_new_pod"`
	FromMS  int64  `json:"from_ms"`
	ToMS    int64  `json:"to_ms"`
	Status  int    `json:"status"`
	Reason  Reason `json:"lost_by,omitempty"`
	Phase   Phase  `json:"phase,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Loss is a group of requests that were lost in the same way.
type Loss struct {
	Request string `json:"request"`
	Reason  Reason `json:"reason"`
	Phase   Phase  `json:"phase"`
	Count   int    `json:"count"`
	FirstMS int64  `json:"first_ms"`
	LastMS  int64  `json:"last_ms"`
	Detail  string `json:"detail,omitempty"` // of the first
	Fix     string `json:"fix"`
}

// maxSendings is how many requests of a run the result lists.
const maxSendings = 400

// add adds a trial's outcome to its row.
func (row *Row) add(t *trial) {
	since := func(at time.Time) int64 {
		if at.IsZero() {
			return -1
		}
		return at.Sub(t.deleted).Milliseconds()
	}
	run := Round{HookEndMS: since(t.end.App.HookEnded), TermMS: since(t.end.App.Terminated), KillMS: since(t.end.App.Killed),
		GoneMS: since(t.end.Gone()), EndedBy: endedBy(t.end)}
	if t.end.App.HookError != nil {
		run.HookError = t.end.App.HookError.Error()
	}
	row.Load = t.load
	slices.SortFunc(t.records, func(a, b sending) int { return a.Began.Compare(b.Began) })
	for _, s := range t.records {
		r, ref := t.options.Requests[s.request], t.references[s.request]
		one := Sending{Request: s.request, Client: s.caller, Conn: s.Conn, OnNew: s.Address == t.next.Address,
			FromMS: since(s.Began), ToMS: since(s.Last), Status: s.Status, Reason: reason(r, ref, s.Outcome)}
		row.Requests++
		if one.Reason != "" {
			one.Phase, one.Detail = t.phase(s.Outcome, one.Reason), s.Detail
			row.lose(one, r, t.fix(r, ref, one.Reason, one.Phase))
		}
		run.Sendings = append(run.Sendings, one)
	}
	row.Runs = append(row.Runs, bounded(run))
}

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

func (row *Row) lose(s Sending, r Request, fix string) {
	if s.Phase == Serving || s.Phase == Elsewhere {
		row.Faults++
	} else {
		row.Lost++
		row.Reasons[s.Reason]++
		if s.Reason == Short {
			row.Short++
		}
	}
	for i := range row.Losses {
		l := &row.Losses[i]
		if l.Request == r.String() && l.Reason == s.Reason && l.Phase == s.Phase {
			l.Count++
			l.FirstMS, l.LastMS = min(l.FirstMS, s.ToMS), max(l.LastMS, s.ToMS)
			return
		}
	}
	row.Losses = append(row.Losses, Loss{r.String(), s.Reason, s.Phase, 1, s.ToMS, s.ToMS, s.Detail, fix})
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

// WriteJSON writes the result as one JSON object, of Schema.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}
