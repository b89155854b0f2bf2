package observe

import (
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// maxCut bounds the requests that one report can claim: a container writes its termination message itself.
const maxCut = 100_000

// AgentReport is what lastcall's sidecar or hook wrote into a termination message, which outlives it in the pod's status.
type AgentReport struct {
	IsSidecar    bool          `json:"-"` // otherwise the hook's, behind which the app still had to end
	Verdict      drain.Verdict `json:"verdict"`
	Seconds      float64       `json:"seconds"`                 // of the drain
	Cut          int           `json:"cut,omitempty"`           // conversations that the last call ended in the middle
	Opaque       int           `json:"opaque,omitempty"`        // that it ended or left to the app, without knowing whether a request was in flight
	Raced        uint64        `json:"raced,omitempty"`         // requests that crossed the close of an idle connection
	DeadlineFrom string        `json:"deadline_from,omitempty"` // the source of an earlier SIGKILL; empty: none
}

// reportOf reads a termination message; nil if it is not a report of the end of a drain.
func reportOf(message string) *AgentReport {
	r, ok := drain.ParseMessage(message)
	if !ok || r.Verdict == drain.Resumed || r.Verdict == drain.Restarted {
		return nil
	}
	a := &AgentReport{Verdict: r.Verdict, Seconds: time.Duration(r.Duration).Seconds(), Raced: r.Raced, DeadlineFrom: r.DeadlineFrom}
	if a.Verdict == drain.Cut {
		a.Cut = max(r.LeftOut, 0)
		for _, one := range r.Open {
			switch {
			case slices.Contains([]string{"tcp", "tls", "unknown"}, one.Protocol), one.Ending == "left to the app":
				a.Opaque++
			case !strings.HasPrefix(one.Ending, "close "): // of a WebSocket: it had a close frame
				a.Cut++
			}
		}
		if r.Finish != nil {
			a.Cut += int(min(r.Finish.Dropped, maxCut))
		}
		if len(r.Open) == 0 {
			a.Cut = max(a.Cut, 1) // after a failed last call the number is unknown
		}
		a.Cut = min(a.Cut, maxCut)
	}
	return a
}

// addReport makes lastcall's report the truth for what lastcall carried: it knows each request. Behind a hook the app
// still has to end, so that what was lost then for certain counts, too.
func (t *Termination) addReport(p *Pod) {
	for _, c := range p.Containers {
		r := c.Report
		if r == nil {
			continue
		}
		t.Agent, t.event = r, carrier.EventName(p.UID, p.Name, c.Name, c.Restarts)
		seen := &t.Traffic
		switch {
		case r.Verdict != drain.Clean && r.Verdict != drain.Cut: // it does not know
			seen.Lost.Cut = max(0, r.Cut-seen.Lost.Total())
			continue
		case r.IsSidecar:
			seen.Lost = observe.Lost{Cut: r.Cut}
			t.Unknown = nil
		default:
			seen.Lost.Cut = max(0, r.Cut-seen.Lost.Total())
		}
		seen.Maybe = observe.Maybe{Raced: int(min(r.Raced, maxCut)), Opaque: r.Opaque}
		if r.IsSidecar {
			seen.Unseen, seen.Overruns, seen.Blind = 0, 0, 0
		}
	}
}
