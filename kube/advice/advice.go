// Package advice adds up the losses of the terminations of a workload's pods, and states remedies.
//
// The advice is as good as the numbers are: it names the number that it follows from, and nothing follows from
// terminations that were not observed.
package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Termination is one line of an observer: the end of a pod, as the kernel has shown it.
type Termination struct {
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Workload  string   `json:"workload"` // kind/name in lower case
	Proxy     string   `json:"proxy"`    // the carrier of the pod's traffic: see pod.CarrierOf
	Verdict   string   `json:"verdict"`  // clean, lost, killed, unclear or unknown
	Unknown   []string `json:"unknown,omitempty"`

	// LostLeast and LostMost are how many requests were lost: at least, and at most; -1 if not all was seen, so that
	// there is no upper bound. What makes the difference is in Traffic.Unclear.
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

// Conclude sets what follows from the traffic, and from the containers that SIGKILL ended.
func (t *Termination) Conclude(killed []string) {
	t.Killed, t.Lateness = killed, time.Duration(t.Traffic.Arrivals.Last).Seconds()
	t.Judge()
}

// Tail is the time from the last new connection, or the beginning without one, until no request was in flight: a lower
// bound of the longest request.
func (t *Termination) Tail() time.Duration {
	return max(0, time.Duration((t.Seconds-t.Lateness)*float64(time.Second))-time.Duration(t.Traffic.Idle))
}

// Judge sets the bounds and Verdict from the rest.
func (t *Termination) Judge() {
	if len(t.Killed) > 0 { // the requests in flight are lost
		t.Traffic.Lost.Reset += t.Traffic.Unclear.Unfinished
		t.Traffic.Unclear.Unfinished = 0
		t.Traffic.Exit.Known, t.Traffic.Exit.Killed = true, true
	}
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
	w.Lost.Add(one.Traffic.Lost)
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

// Advice is a remedy for a workload, with the number that it follows from.
type Advice struct {
	What, Why string
	Patch     string // a strategic merge patch of the workload, as YAML; empty: none
}

// Figures from which advice follows.
const (
	graceReserve  = 5 * time.Second // for requests that SIGKILL cut, which would have taken longer
	idleWorth     = 5               // mean seconds without a request that are worth a remark
	shareNotFixed = 0.5             // of a termination: idle time beyond it looks like a fixed sleep
)

const holdAnnotation = pod.AnnotationMinimumDrain + ": %ds"

// Advise lists remedies for a workload, the most important first. A workload without a loss, a SIGKILL or a waste of
// time gets none.
func Advise(w *Workload) (all []Advice) {
	late := fmt.Sprintf("new connections arrived up to %s after SIGTERM", Seconds(w.Lateness))
	hold := int(math.Ceil(w.Lateness)) + 1
	isOurs := pod.HasLastcall(w.Proxy)
	switch {
	case w.Total() > 0 && !isOurs:
		why := w.Lost.Why()
		if w.Refused > 0 && w.Lateness > 0 {
			why += "; " + late
		}
		a := Advice{What: "let lastcall hold the pod until its requests are answered", Why: why,
			Patch: w.patch("metadata:\n  labels:\n    lastcall.dev/inject: \"true\"")}
		if w.Lateness > drain.DefaultMinimumDrain.Seconds() {
			a.Patch = w.patch(fmt.Sprintf("metadata:\n  labels:\n    lastcall.dev/inject: \"true\"\n"+
				"  annotations:\n    "+holdAnnotation, hold))
		}
		all = append(all, a)
	case w.Refused > 0: // behind lastcall
		all = append(all, Advice{What: fmt.Sprintf("accept new connections for %d s", hold),
			Why:   fmt.Sprintf("%d refused; %s", w.Refused, late),
			Patch: w.patch(fmt.Sprintf("metadata:\n  annotations:\n    "+holdAnnotation, hold))})
	}
	if w.Killed > 0 {
		grace := int((podend.Grace(time.Duration(w.Longest*float64(time.Second))) + graceReserve) / time.Second)
		all = append(all, Advice{What: fmt.Sprintf("raise the grace period to %d s or more", grace),
			Why: fmt.Sprintf("SIGKILL ended %d of %d terminations; "+
				"the longest took %s, and how long it needs is unknown", w.Killed, w.Terminations, Seconds(w.Longest)),
			Patch: w.patch(fmt.Sprintf("spec:\n  terminationGracePeriodSeconds: %d", grace))})
	}
	if isOurs && w.Reset+w.Cut > 0 && w.Killed == 0 {
		all = append(all, Advice{
			What: "look at what the drain had to cut: kubectl get events --field-selector reason=DrainCut",
			Why: fmt.Sprintf("%d reset or cut behind lastcall. A protocol whose server speaks first, or long streams, "+
				"may need an opaque port or a longer grace period", w.Reset+w.Cut)})
	}
	if mean := w.Idle / float64(max(w.Terminations, 1)); !isOurs && mean >= idleWorth && w.Idle > shareNotFixed*w.Seconds {
		all = append(all, Advice{What: "replace the fixed sleep (preStop, minimum drain) by a wait for requests",
			Why: fmt.Sprintf("%s of %s were waited without a request in flight; %s", Seconds(w.Idle), Seconds(w.Seconds), late)})
	}
	if w.Unknown > 0 {
		all = append(all, Advice{What: "do not call it clean yet",
			Why: fmt.Sprintf("%d of %d terminations were not observed completely", w.Unknown, w.Terminations)})
	}
	return all
}

// patch is a patch of the workload's pod template, whose content is indented to its place. A single pod cannot be
// patched so.
func (w *Workload) patch(template string) string {
	if strings.HasPrefix(w.Name, "pod/") {
		return ""
	}
	const indent = "    "
	return "spec:\n  template:\n" + indent + strings.ReplaceAll(template, "\n", "\n"+indent) + "\n"
}

// Text is the workload's sum in one paragraph.
func (w *Workload) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s, proxy %s. Terminations: %d. Requests lost: %d",
		w.Name, w.Namespace, w.Proxy, w.Terminations, w.Total())
	if w.Perhaps > 0 {
		fmt.Fprintf(&b, " to %d", w.Total()+w.Perhaps)
	}
	if text := w.Lost.Why(); text != "" {
		fmt.Fprintf(&b, " (%s)", text)
	}
	b.WriteString(".")
	if w.Lateness > 0 {
		fmt.Fprintf(&b, " New connections arrived up to %s after SIGTERM.", Seconds(w.Lateness))
	}
	if w.Idle >= 0.1 {
		fmt.Fprintf(&b, " %s of %s were waited without a request in flight.", Seconds(w.Idle), Seconds(w.Seconds))
	}
	if w.Killed > 0 {
		fmt.Fprintf(&b, " Ended by SIGKILL: %d.", w.Killed)
	}
	return b.String()
}

// Seconds writes a time as people do: "12.3 s".
func Seconds(s float64) string {
	if s >= 100 {
		return fmt.Sprintf("%.0f s", s)
	}
	return fmt.Sprintf("%.1f s", s)
}
