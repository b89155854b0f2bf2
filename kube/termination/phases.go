package termination

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
)

// Phase is an interval in which clients see the same. Times are since the deletion.
type Phase struct {
	From, To time.Duration
	New      string // new connections: "accepted", "refused" or "503"
	InFlight string // requests in flight: "served", "cut" or "none"
	IsIdle   bool   // the pod exists, and nothing waits for it: no request is in flight, and no new one is served
	Why      string // the event that begins it
}

// What Phase.New and Phase.InFlight are.
const (
	Accepted = "accepted"
	Served   = "served"
	CutOff   = "cut"
	None     = "none"
)

// Phases divides a course into intervals, from the deletion to the pod's end. busy is Traffic.Busy.
func (t *Termination) Phases(c course.Course, busy time.Duration) []Phase {
	type event struct {
		at  time.Duration
		why string
	}
	served := min(busy, c.Cut, c.Gone)
	events := []event{{0, "the pod is deleted: " + t.beginnings(c)}}
	add := func(at time.Duration, format string, args ...any) {
		if at > 0 && at < c.Gone {
			events = append(events, event{at, fmt.Sprintf(format, args...)})
		}
	}
	for i := range t.Containers {
		k, m := &t.Containers[i], c.Containers[i]
		if m.Signal > 0 {
			add(m.Signal, "%s gets %s", k.Name, k.StopSignal.Value)
		}
	}
	if t.LastCall > 0 && busy > t.LastCall {
		add(t.LastCall, "last call")
	}
	if busy > c.Cut {
		add(c.Cut, "%s", c.CutBy)
	} else {
		add(busy, "the last response ends")
	}
	if c.Accepts < c.Gone {
		add(c.Accepts, "new connections: %s", c.Refusal)
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	var out []Phase
	for _, e := range events {
		if n := len(out); n > 0 && out[n-1].From == e.at {
			out[n-1].Why += "; " + e.why
			continue
		}
		p := Phase{From: e.at, New: Accepted, InFlight: None, Why: e.why}
		if e.at >= c.Accepts {
			p.New = string(c.Refusal)
		}
		if e.at < served {
			p.InFlight = Served
		} else if e.at == c.Cut && busy > c.Cut {
			p.InFlight = CutOff
		}
		p.IsIdle = p.InFlight == None && p.New != Accepted
		out = append(out, p)
	}
	for i := range out {
		out[i].To = c.Gone
		if i+1 < len(out) {
			out[i].To = out[i+1].From
		}
	}
	return out
}

// beginnings lists the events at the deletion.
func (t *Termination) beginnings(c course.Course) string {
	var all []string
	for i := range t.Containers {
		switch k := &t.Containers[i]; {
		case k.PreStop.Kind != course.NoHook:
			all = append(all, k.Name+"'s preStop begins")
		case c.Containers[i].Signal == 0:
			all = append(all, k.Name+" gets "+k.StopSignal.Value)
		}
	}
	return strings.Join(all, ", ")
}

// Fate is the end of one request.
type Fate struct {
	IsServed bool
	Result   string        // "200", "refused", "503" or "cut"
	At       time.Duration // of the result, since the deletion
	Why      string        // of a loss
}

// Fate predicts the end of a request that arrives at a moment since the deletion, which may be negative, and takes
// takes. It is the only request; other requests can keep the pod accepting for longer.
func (t *Termination) Fate(arrives, takes time.Duration) Fate {
	end := arrives + takes
	if end <= 0 {
		return Fate{IsServed: true, Result: "200", At: end}
	}
	if arrives >= 0 {
		if c := t.Course(course.Traffic{}); arrives >= c.Accepts {
			why := "the pod no longer accepts"
			if c.Refusal == course.Unavailable {
				why = "the app has closed its port"
			}
			return Fate{Result: string(c.Refusal), At: arrives, Why: why}
		}
	}
	c := t.Course(course.Traffic{Busy: end, Last: max(0, arrives)})
	if end <= c.Cut {
		return Fate{IsServed: true, Result: "200", At: end}
	}
	return Fate{Result: CutOff, At: c.Cut, Why: c.CutBy}
}
