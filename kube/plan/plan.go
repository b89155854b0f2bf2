// Package plan shows how the pods of a manifest will end, as a timeline: for a terminal, as SVG and as JSON; and
// computes the smallest timers with which they lose no request. The rules are package termination's.
package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Options of a plan.
type Options struct {
	termination.Options

	Request     time.Duration // how long a request takes
	Propagation time.Duration // how long after the deletion clients still connect to the pod
}

// Plan is the termination of one workload's pods, with a request in flight at the deletion.
type Plan struct {
	Name string // of the workload, such as Deployment shop/web

	*termination.Termination
	Options Options
	Course  podend.Course // what is unknown is at its worst for clients
	Idle    podend.Course // without a request
	Best    podend.Course // Course, with all that is unknown at its best
	Phases  []termination.Phase
	Fates   []Arrival

	// Longest is the time that clients can rely on: requests in flight at the deletion are served if they end by then.
	// Up to Hoped it is unknown.
	Longest, Hoped time.Duration

	idleBest podend.Course
}

// Arrival is a request and its end.
type Arrival struct {
	At time.Duration // when it arrives, since the deletion; negative: before it
	termination.Fate
}

// inFlight is an arrival just before the deletion.
const inFlight = -time.Millisecond

// New plans the termination of a pod.
func New(name string, pod *corev1.Pod, o Options) *Plan {
	p := &Plan{Name: name, Termination: termination.Of(pod, o.Options), Options: o}
	best := p.Termination.Best()
	p.Course, p.Idle = p.Termination.Course(podend.Traffic{Busy: o.Request}), p.Termination.Course(podend.Traffic{})
	moments := []time.Duration{inFlight, 0} // and while clients still connect
	switch {
	case p.hasNoClients():
		moments = moments[:1]
	case o.Propagation > 0:
		moments = append(moments, o.Propagation/2, o.Propagation)
	}
	for _, at := range moments {
		p.Fates = append(p.Fates, Arrival{at, p.Fate(at, o.Request)})
	}
	const forever = 1000 * time.Hour
	p.Best, p.idleBest = best.Course(podend.Traffic{Busy: o.Request}), best.Course(podend.Traffic{})
	p.Phases = p.Termination.Phases(p.Course, p.Best, o.Request)
	p.Longest = p.Termination.Course(podend.Traffic{Busy: forever}).Cut
	p.Hoped = best.Course(podend.Traffic{Busy: forever}).Cut
	return p
}

// hasNoClients reports whether no client connects to the pod: it is a worker's.
func (p *Plan) hasNoClients() bool { return p.Idle.Refusal == podend.NoClients }

// Lost is the number of arrivals whose request is lost for certain.
func (p *Plan) Lost() (n int) {
	for _, f := range p.Fates {
		if !f.IsServed && f.Result != termination.Unknown {
			n++
		}
	}
	return n
}

// Waste is how long the pod exists although nothing waits for it.
func (p *Plan) Waste() (d time.Duration) {
	for _, phase := range p.Phases {
		if phase.IsIdle {
			d += phase.To - phase.From
		}
	}
	return d
}

// gone is the latest end of the pod.
func (p *Plan) gone() time.Duration { return max(p.Course.Gone, p.Best.Gone) }

// until is the end of the time axis.
func (p *Plan) until() time.Duration {
	return max(p.Grace, p.gone(), p.Options.Request, time.Second)
}

// Promises are the facts on which clients can rely, in words.
func (p *Plan) Promises() []string {
	out := []string{fmt.Sprintf(
		"requests in flight at the deletion are served if they end within %s", terminal.Seconds(p.Longest))}
	switch {
	case p.Hoped > p.Longest && p.Longest == 0:
		out[0] = "whether requests in flight at the deletion are served is unknown" + p.missing()
	case p.Hoped > p.Longest:
		out[0] += "; what becomes of longer ones is unknown" + p.missing()
	case p.Longest == 0:
		out[0] = "every request in flight at the deletion is cut"
	}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	served, connect := terminal.Seconds(p.Idle.Accepts), terminal.Seconds(p.Options.Propagation)
	isLate := p.Options.Propagation > p.Idle.Accepts
	isUnknown := isLate && p.idleBest.Accepts > p.Idle.Accepts
	switch {
	case p.hasNoClients():
		say("the pod serves no connections")
	case isUnknown && p.Idle.Accepts == 0:
		say("whether new connections are served is unknown, and clients connect for another %s", connect)
	case isUnknown:
		say("new connections are served for %s; from then on it is unknown, and clients still connect for %s",
			served, connect)
	case p.Idle.Accepts == 0:
		say("new connections fail (%s), although clients connect for another %s", p.Idle.Refusal, connect)
	case isLate:
		say("new connections are served for %s; clients still connect for %s", served, connect)
	default:
		say("new connections are served for %s, longer than clients connect (%s)", served, connect)
	}
	gone := "an idle pod is gone after " + terminal.Seconds(p.Idle.Gone)
	if p.idleBest.Gone > p.Idle.Gone {
		gone += ", or later: no later than " + terminal.Seconds(p.idleBest.Gone)
	}
	say("%s", gone)
	if w := p.Waste(); w >= time.Second {
		say("the pod then waits for nothing for %s", terminal.Seconds(w))
	}
	return out
}

// missing names what the manifest does not show.
func (p *Plan) missing() string {
	for _, c := range p.Containers {
		is := c.Role == podend.App || c.Role == podend.Worker
		if is && (c.Reaction == podend.Unsure || c.Hook.Stop == podend.Unsure) {
			return ": a manifest does not show what " + c.Name +
				" does at its stop signal (--app; lastcallctl rehearse service finds out)"
		}
	}
	return " (see the notes)"
}

// ending is how the pod and the requests in flight end.
func (p *Plan) ending() string {
	text := "the pod is gone"
	if p.Best.Gone > p.Course.Gone {
		text += ", if not before"
	}
	if p.Best.Killed {
		text += ", by SIGKILL"
	}
	if p.Options.Request > p.Best.Cut && p.Best.Cut == p.gone() {
		text += "; the request is cut: " + p.Best.CutBy
	}
	return text
}

// arrival describes when a request arrives.
func (a Arrival) arrival() string {
	switch {
	case a.At < 0:
		return "is in flight at the deletion"
	case a.At == 0:
		return "arrives at the deletion"
	}
	return "arrives " + terminal.Seconds(a.At) + " later"
}

// outcome describes its end.
func (a Arrival) outcome() string {
	switch {
	case a.IsServed:
		return "200 at " + terminal.Seconds(a.Fate.At)
	case a.Result == termination.Unknown:
		return "unknown: " + a.Why
	case a.Result == termination.CutOff:
		return "cut at " + terminal.Seconds(a.Fate.At) + ": " + a.Why
	}
	return a.Result + ": " + a.Why
}

// WriteJSON prints plans for programs: an array, all times in milliseconds since the deletion. docs/plan.md lists the
// fields.
func WriteJSON(w io.Writer, plans []*Plan) error {
	out := make([]object, 0, len(plans))
	for _, p := range plans {
		out = append(out, p.json())
	}
	e := json.NewEncoder(printable.JSONWriter(w))
	e.SetIndent("", "  ")
	return e.Encode(out)
}

type object map[string]any

func (p *Plan) json() object {
	ms := time.Duration.Milliseconds
	containers, phases, requests := []object{}, []object{}, []object{}
	for i, c := range p.Containers {
		m := p.Course.Containers[i]
		settings := []object{}
		for _, s := range c.Settings {
			settings = append(settings, object{"name": s.Name, "value": s.Value, "source": s.Source})
		}
		containers = append(containers, object{
			"name": c.Name, "role": c.Role, "native": c.Native, "assumed": c.Assumed,
			"pre_stop": c.Hook.Kind, "pre_stop_text": c.Hook.Text,
			"stop_signal": c.StopSignal, "reaction": c.Reaction, "settings": settings,
			"signal_ms": ms(m.Signal), "kill_ms": ms(m.Kill), "gone_ms": ms(m.Gone),
			"signal_latest_ms": ms(p.Best.Containers[i].Signal),
			"gone_latest_ms":   ms(max(m.Gone, p.Best.Containers[i].Gone)),
		})
	}
	for _, f := range p.Phases {
		phases = append(phases, object{
			"from_ms": ms(f.From), "to_ms": ms(f.To), "why": f.Why,
			"new_connections": f.New, "in_flight": f.InFlight, "waits_for_nothing": f.IsIdle,
		})
	}
	for _, a := range p.Fates {
		requests = append(requests, object{
			"arrives_ms": ms(a.At), "served": a.IsServed, "result": a.Result, "at_ms": ms(a.Fate.From),
			"at_latest_ms": ms(a.Fate.At), "why": a.Why,
		})
	}
	return object{
		"name": p.Name, "mesh": p.Mesh, "lastcall": p.HasLastcall, "grace_ms": ms(p.Grace),
		"last_call_ms": ms(p.LastCall), "request_ms": ms(p.Options.Request), "longest_request_served_ms": ms(p.Longest),
		"idle_pod_accepts_ms": ms(p.Idle.Accepts), "idle_pod_gone_ms": ms(p.Idle.Gone),
		"gone_ms": ms(p.Course.Gone), "gone_latest_ms": ms(p.gone()), "killed": p.Course.Killed,
		"longest_request_hoped_ms": ms(p.Hoped), "containers": containers,
		"phases": phases, "requests": requests, "notes": append([]string{}, p.Notes...),
	}
}
