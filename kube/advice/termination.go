// Package advice adds up the losses of the terminations of a workload's pods, and states remedies.
//
// The advice is as good as the numbers are: it names the number that it follows from, and nothing follows from
// terminations that were not observed.
package advice

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// Termination is one line of an observer: the end of a pod, as the kernel has shown it.
type Termination struct {
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Workload  string   `json:"workload"` // kind/name in lower case
	Proxy     string   `json:"proxy"`    // the carrier of the pod's traffic: see pod.CarrierOf
	Verdict   string   `json:"verdict"`  // clean, lost, killed, unclear or unknown
	Unknown   []string `json:"unknown,omitempty"`

	// LostLeast and LostMost are how many requests were lost: at least, and at most; -1 if not all was seen, so that there
	// is no upper bound. What makes the difference is in Traffic.Unclear.
	LostLeast int `json:"lost_least"`
	LostMost  int `json:"lost_most"`

	// Restart is set for the end of a Container without its pod: a crash, a failed liveness probe, no memory.
	Restart   bool   `json:"restart,omitempty"`
	Container string `json:"container,omitempty"`

	Began    time.Time           `json:"began"`                      // when the observer learned of it
	Deadline time.Time           `json:"deadline,omitzero"`          // of SIGKILL; zero: unknown
	Seconds  float64             `json:"seconds"`                    // until the exit of the app's last process
	Killed   []string            `json:"killed,omitempty"`           // containers that SIGKILL ended
	Lateness float64             `json:"lateness_seconds,omitempty"` // from the beginning to a client's last connection
	Traffic  observe.Termination `json:"traffic,omitzero"`           // as the kernel showed it
}

// ReasonRestart is the metrics' reason for losses of a container that ended without its pod.
const ReasonRestart = "restart"

// The verdicts.
const (
	Clean   = string(observe.VerdictClean)   // no request was lost
	Lost    = string(observe.VerdictLost)    // at least one was
	Killed  = "killed"                       // SIGKILL ended a container, and no request was lost
	Unclear = string(observe.VerdictUnclear) // none was for certain, and at most LostMost
	Unknown = string(observe.VerdictUnknown) // none was for certain, but not everything was seen
)

// Verdicts are all of them.
var Verdicts = []string{Clean, Lost, Killed, Unclear, Unknown}

// endBySIGKILL counts the requests in flight at the SIGKILL that ended a container: they are lost.
func (t *Termination) endBySIGKILL() {
	if len(t.Killed) == 0 {
		return
	}
	t.Traffic.Lost.Reset += t.Traffic.Unclear.Unfinished
	t.Traffic.Unclear.Unfinished = 0
	t.Traffic.Exit.Known, t.Traffic.Exit.Killed = true, true
}

// Tail is the time from the last new connection, or the beginning without one, until no request was in flight: a lower
// bound of the longest request.
func (t *Termination) Tail() time.Duration {
	return max(0, time.Duration((t.Seconds-t.Lateness)*float64(time.Second))-time.Duration(t.Traffic.Idle))
}

// Judge sets the bounds and Verdict from the rest.
func (t *Termination) Judge() {
	t.endBySIGKILL()
	t.Traffic.Judge()
	most, known := t.Traffic.Most()
	if !known || len(t.Unknown) > 0 {
		most = -1
	}
	t.LostLeast, t.LostMost = t.Traffic.Lost.Total(), most
	t.Verdict = string(t.Traffic.Verdict)
	switch {
	case t.LostLeast == 0 && most < 0:
		t.Verdict = Unknown
	case t.Verdict == Clean && len(t.Killed) > 0:
		t.Verdict = Killed
	}
}

// Bounds are the numbers of lost requests: "3", "0 to 2", or "0 or more".
func (t *Termination) Bounds() string {
	switch {
	case t.LostMost < 0:
		return fmt.Sprintf("%d or more", t.LostLeast)
	case t.LostMost > t.LostLeast:
		return fmt.Sprintf("%d to %d", t.LostLeast, t.LostMost)
	}
	return strconv.Itoa(t.LostLeast)
}

// Doubts is why the bounds differ, with other remarks.
func (t *Termination) Doubts() string {
	var all []string
	if len(t.Killed) > 0 {
		all = append(all, "SIGKILL ended "+strings.Join(t.Killed, ", "))
	}
	all = append(all, t.Unknown...)
	if why := t.Traffic.Unclear.Why(); why != "" {
		all = append(all, "perhaps lost: "+why)
	}
	if t.Traffic.Unseen > 0 {
		all = append(all, "not seen to the end: "+terminal.Count(t.Traffic.Unseen, "connection"))
	}
	return strings.Join(all, "; ")
}

// Workload is the sum of the terminations of one workload behind one proxy.
type Workload struct {
	Namespace string
	Name      string // kind/name in lower case
	Proxy     string

	Terminations int
	Unknown      int // of them, not observed completely
	Killed       int // of them, ended by SIGKILL

	observe.Lost     // requests, for certain
	Perhaps      int // requests in addition, at most

	Seconds  float64 // of all terminations, to the exit of the app
	Idle     float64 // of these, without a request in flight before the exit
	Lateness float64 // from the beginning of a termination to the last new connection: the longest
	Longest  float64 // termination
}

// Totals adds up the terminations of one workload. Its pods may have another proxy after a rollout.
type Totals struct{ all []*Workload }

func (t *Totals) of(one *Termination) *Workload {
	if i := slices.IndexFunc(t.all, func(w *Workload) bool { return w.Proxy == one.Proxy }); i >= 0 {
		return t.all[i]
	}
	w := &Workload{Namespace: one.Namespace, Name: one.Workload, Proxy: one.Proxy}
	t.all = append(t.all, w)
	return w
}

// Add adds a termination.
func (t *Totals) Add(one Termination) {
	w := t.of(&one)
	w.Perhaps += max(0, one.LostMost-one.LostLeast)
	w.Terminations++
	switch {
	case one.Verdict == Unknown:
		w.Unknown++
	case len(one.Killed) > 0:
		w.Killed++
	}
	lost := one.Traffic.Lost
	w.Reset, w.Unanswered = w.Reset+lost.Reset, w.Unanswered+lost.Unanswered
	w.Refused, w.Cut = w.Refused+lost.Refused, w.Cut+lost.Cut
	w.Seconds += one.Seconds
	w.Idle += min(time.Duration(one.Traffic.Idle).Seconds(), one.Seconds)
	w.Lateness = max(w.Lateness, one.Lateness)
	w.Longest = max(w.Longest, one.Seconds)
}

// Workloads are the sums, the largest loss first.
func (t *Totals) Workloads() []*Workload {
	slices.SortStableFunc(t.all, func(a, b *Workload) int { return cmp.Compare(b.Total(), a.Total()) })
	return t.all
}
