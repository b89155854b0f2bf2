package losses

import (
	"cmp"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

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
