// Package termination describes how a pod ends, as data: its containers in the order in which they stop, each with its
// preStop hook, its stop signal and its reaction to that signal; and the mesh and its timers, each with its source. Of
// is a pure function of the pod's manifest. Package podend computes from it what happens under given traffic.
package termination

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Options are the settings that a manifest does not show.
type Options struct {
	Namespace  inject.Namespace // that the pod will be in: its labels can enable injection
	MeshConfig string           // the text of Istio's MeshConfig; empty for none

	// Istio is the form of a sidecar that Istio's injector will add; empty is inject.Native, the default of Istio 1.27
	// and later. The pod's annotation sidecar.istio.io/nativeSidecar has precedence.
	Istio inject.Sidecar

	// App is the reaction of the app containers to their stop signal; empty is that of their programs, as far as the
	// manifest shows it.
	App podend.Reaction

	Knative bool                 // makes the pod, and adds its hooks
	Targets []intstr.IntOrString // of the Services that send the pod requests; empty if they are unknown
}

// Setting is a value and where it was set: "default", or such as "annotation proxy.istio.io/config".
type Setting struct {
	Name   string
	Value  string
	Source string
}

// Container is one container of the pod, when it stops.
type Container struct {
	podend.Container
	Assumed    bool // not in the manifest: the mesh's injector adds it
	StopSignal string
	Settings   []Setting // that decide how it ends, with their sources
}

// Termination is how a pod ends.
type Termination struct {
	podend.Pod
	GraceSource string      // where terminationGracePeriodSeconds was set
	Mesh        string      // pod.MeshIstio and others, or "" for none; in a pod with lastcall it can be both
	Containers  []Container // in the order in which they stop
	Notes       []string    // assumptions, one sentence each
}

func (t *Termination) note(text string) { t.Notes = append(t.Notes, text) }

// Phase is an interval in which clients see the same. Times are since the deletion.
type Phase struct {
	From, To time.Duration
	New      string // new connections: "accepted", "refused", "503" or "unknown"
	InFlight string // requests in flight: "served", "cut", "unknown" or "none"
	IsIdle   bool   // the pod exists, and nothing waits for it: no request is in flight, and no new one is served
	Why      string // the event that begins it
}

// What Phase.New and Phase.InFlight are.
const (
	Accepted = "accepted"
	Served   = "served"
	CutOff   = "cut"
	None     = "none"
	Unknown  = "unknown" // the manifest does not show it
)

// Phases divides the pod's end into intervals, from the deletion on. c and best are its courses with a request until
// busy: what differs between the two is unknown.
func (t *Termination) Phases(c, best podend.Course, busy time.Duration) []Phase {
	type event struct {
		at  time.Duration
		why string
	}
	served, gone := min(busy, c.Cut), max(c.Gone, best.Gone)
	events := []event{{0, "the pod is deleted: " + t.beginnings(c)}}
	add := func(at time.Duration, format string, args ...any) {
		if at > 0 && at < gone {
			events = append(events, event{at, fmt.Sprintf(format, args...)})
		}
	}
	for i := range t.Containers {
		k, m := &t.Containers[i], c.Containers[i]
		switch later := best.Containers[i].Signal; {
		case later > m.Signal:
			add(m.Signal, "%s gets %s, now or later", k.Name, k.StopSignal)
		case m.Signal > 0:
			add(m.Signal, "%s gets %s", k.Name, k.StopSignal)
		}
	}
	if t.LastCall > 0 && busy > t.LastCall {
		add(t.LastCall, "last call")
	}
	if busy > c.Cut {
		add(c.Cut, "%s", c.CutBy)
	}
	if busy > best.Cut && best.Cut > c.Cut {
		add(best.Cut, "%s", best.CutBy)
	} else if busy <= best.Cut {
		add(busy, "the last response ends")
	}
	if best.Accepts > c.Accepts {
		add(c.Accepts, "new connections: accepted, or %s", c.Refusal)
	}
	add(best.Accepts, "new connections: %s", best.Refusal)
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	var out []Phase
	for _, e := range events {
		if n := len(out); n > 0 && out[n-1].From == e.at {
			out[n-1].Why += "; " + e.why
			continue
		}
		p := Phase{From: e.at, New: Accepted, InFlight: None, Why: e.why}
		switch {
		case e.at >= best.Accepts:
			p.New = string(best.Refusal)
		case e.at >= c.Accepts:
			p.New = Unknown
		}
		switch {
		case e.at < served:
			p.InFlight = Served
		case e.at < min(busy, best.Cut):
			p.InFlight = Unknown
		case e.at == best.Cut && busy > best.Cut:
			p.InFlight = CutOff
		}
		p.IsIdle = p.InFlight == None && p.New != Accepted && p.New != Unknown && e.at < c.Gone
		out = append(out, p)
	}
	for i := range out {
		out[i].To = gone
		if i+1 < len(out) {
			out[i].To = out[i+1].From
		}
	}
	return out
}

// beginnings lists the events at the deletion.
func (t *Termination) beginnings(c podend.Course) string {
	var all []string
	for i := range t.Containers {
		switch k := &t.Containers[i]; {
		case k.Hook.Kind != podend.NoHook:
			all = append(all, k.Name+"'s preStop begins")
		case c.Containers[i].Signal == 0:
			all = append(all, k.Name+" gets "+k.StopSignal)
		}
	}
	return strings.Join(all, ", ")
}

// Fate is the end of one request.
type Fate struct {
	IsServed bool
	Result   string        // "200", "refused", "503", "cut" or "unknown"
	From     time.Duration // of the result at the earliest, since the deletion
	At       time.Duration // of the result, no later than this
	Why      string        // of a loss
}

// Fate predicts the end of a request that arrives at a moment since the deletion, which may be negative, and takes
// takes. It is the only request; other requests can keep the pod accepting for longer.
func (t *Termination) Fate(arrives, takes time.Duration) Fate {
	worst := fate(&t.Pod, arrives, takes)
	worst.From = worst.At
	if worst.IsServed {
		return worst
	}
	switch best := fate(t.Best(), arrives, takes); {
	case best.IsServed:
		worst.Why = fmt.Sprintf("200, or %s at %s: %s", worst.Result, terminal.Seconds(worst.At), worst.Why)
		worst.Result = Unknown
	case best.At > worst.At:
		best.From, best.Why = worst.At, best.Why+", if not before: "+worst.Why
		return best
	}
	return worst
}

// fate is Fate in a pod without anything unknown.
func fate(p *podend.Pod, arrives, takes time.Duration) Fate {
	end := arrives + takes
	if end <= 0 {
		return Fate{IsServed: true, Result: "200", At: end}
	}
	if arrives >= 0 {
		if c := p.Course(podend.Traffic{}); arrives >= c.Accepts {
			why := map[podend.Refusal]string{
				podend.Refused: "the pod no longer accepts", podend.Unavailable: "the app has closed its port",
				podend.BadGateway: "the container behind has closed its port",
			}[c.Refusal]
			return Fate{Result: string(c.Refusal), At: arrives, Why: why}
		}
	}
	c := p.Course(podend.Traffic{Busy: end, Last: max(0, arrives)})
	if end <= c.Cut {
		return Fate{IsServed: true, Result: "200", At: end}
	}
	return Fate{Result: CutOff, At: c.Cut, Why: c.CutBy}
}

// Best is the pod in which each thing that is unknown is as good for clients as it can be: between the courses of the
// two lies what will happen.
func (t *Termination) Best() *podend.Pod {
	out, grace := t.Pod, max(t.Pod.Grace, podend.LeastPeriod)
	out.Containers = slices.Clone(out.Containers)
	for i := range out.Containers {
		k := &out.Containers[i]
		k.Reaction, k.Hook = favourable(k.Reaction), best(k.Hook, grace, k.Role)
		if own := k.Hook.Own; own != nil {
			with := best(*own, grace, podend.App)
			k.Hook.Own = &with
		}
	}
	return out.Stopped()
}

// favourable is the best that an unknown reaction can be.
func favourable(r podend.Reaction) podend.Reaction {
	switch r {
	case podend.Unsure:
		return podend.Ignores
	case podend.ClosesPort:
		return podend.Finishes
	}
	return r
}

// best is a hook that takes as long as it can.
func best(h podend.Hook, grace time.Duration, role podend.Role) podend.Hook {
	h.Stop = favourable(h.Stop)
	isOpen := h.Kind == podend.ScriptHook || h.Kind == podend.HTTPHook ||
		h.Kind == podend.LoopHook && role != podend.Proxy
	if h.IsKnown || !isOpen {
		return h
	}
	before := h.Duration
	if h.Duration = grace; h.Most > 0 {
		h.Duration = min(h.Most, grace)
	}
	if h.MayStop = false; h.StopsLater {
		h.StopsAt += max(0, h.Duration-before)
	}
	h.Kind = podend.ScriptHook
	return h
}
