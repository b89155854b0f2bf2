package advice

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

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

// defaultMinDrain is lastcall's default minimum drain, seconds: it accepts new connections for so long.
const defaultMinDrain = 5

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
		if w.Lateness > defaultMinDrain {
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
