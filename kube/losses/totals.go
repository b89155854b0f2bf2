package losses

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

// Workload is the sum of the terminations of one workload behind one proxy.
type Workload struct {
	Namespace string `json:"namespace"`
	Name      string `json:"workload"` // kind/name in lower case
	Proxy     string `json:"proxy"`

	Terminations int `json:"terminations"`
	Unclear      int `json:"unclear"` // of them, without a certain loss
	Unknown      int `json:"unknown"` // of them, not observed completely
	Killed       int `json:"killed"`  // of them, ended by SIGKILL

	observe.Lost     // requests, for certain
	Restart      int `json:"restart,omitempty"` // requests that ends of containers without their pods lost
	Perhaps      int `json:"perhaps,omitempty"` // requests in addition, at most

	Seconds  float64 `json:"seconds"`         // of all terminations, to the exit of the app
	Idle     float64 `json:"idle_seconds"`    // of these, without a request in flight before the exit
	Lateness float64 `json:"late_seconds"`    // from the beginning of a termination to the last new connection: the longest
	Longest  float64 `json:"longest_seconds"` // termination
}

// LostLeast is how many requests were lost at least.
func (w *Workload) LostLeast() int { return w.Total() + w.Restart }

// Totals adds up terminations.
type Totals struct{ all map[key]*Workload }

type key struct{ namespace, workload, proxy string }

// maxWorkloads bounds Totals; further workloads are added up as "other".
const maxWorkloads = 10000

func (t *Totals) of(k key) *Workload {
	if t.all == nil {
		t.all = map[key]*Workload{}
	}
	if t.all[k] == nil && len(t.all) >= maxWorkloads {
		k = key{"other", "other", "other"}
	}
	w := t.all[k]
	if w == nil {
		w = &Workload{Namespace: k.namespace, Name: k.workload, Proxy: k.proxy}
		t.all[k] = w
	}
	return w
}

// Add adds a termination.
func (t *Totals) Add(one Termination) {
	w := t.of(key{one.Namespace, one.Workload, one.Proxy})
	w.Perhaps += max(0, one.LostMost-one.LostLeast)
	if one.Restart {
		w.Restart += one.LostLeast
		return
	}
	w.Terminations++
	switch {
	case one.Verdict == Unclear:
		w.Unclear++
	case one.Verdict == Unknown:
		w.Unknown++
	case len(one.Killed) > 0:
		w.Killed++
	}
	lost := one.Traffic.Lost
	w.Reset, w.Unanswered, w.Refused, w.Cut = w.Reset+lost.Reset, w.Unanswered+lost.Unanswered, w.Refused+lost.Refused, w.Cut+lost.Cut
	w.Seconds += one.Seconds
	w.Idle += min(time.Duration(one.Traffic.Idle).Seconds(), one.Seconds)
	w.Lateness = max(w.Lateness, one.Lateness)
	w.Longest = max(w.Longest, one.Seconds)
}

// Workloads are the sums, the largest loss first, then the largest waste of time. Prometheus also has series of
// workloads without a termination; they are left out.
func (t *Totals) Workloads() []*Workload {
	maps.DeleteFunc(t.all, func(_ key, w *Workload) bool { return w.Terminations == 0 && w.LostLeast() == 0 })
	return slices.SortedFunc(maps.Values(t.all), func(a, b *Workload) int {
		return cmp.Or(cmp.Compare(b.LostLeast(), a.LostLeast()), cmp.Compare(b.Killed, a.Killed), cmp.Compare(b.Idle, a.Idle),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Proxy, b.Proxy))
	})
}
