package observe

import (
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// maxCut bounds the requests that one report can claim: a container writes its termination message itself.
const maxCut = 100_000

// AgentReport is what lastcall's agent wrote into its termination message, which outlives it in the pod's status.
type AgentReport struct {
	Verdict      drain.Verdict `json:"verdict"`
	Seconds      float64       `json:"seconds"`                 // of the drain
	Cut          int           `json:"cut,omitempty"`           // conversations that the last call ended
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
		a.Cut = min(max(len(r.Open)+max(r.LeftOut, 0), 1), maxCut) // after a failed last call the number is unknown
	}
	return a
}

// addReport adds what the kernel does not show: a conversation that the last call ended in the way of its protocol looks
// like an answered one, and several on an HTTP/2 connection like one.
func (t *Termination) addReport(p *Pod) {
	t.hasReport = p.HasReport
	for _, c := range p.Containers {
		if c.Report != nil {
			t.Agent = c.Report
			t.Traffic.Lost.Cut = max(0, c.Report.Cut-t.Traffic.Lost.Total())
		}
	}
}
