package rehearsal

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// expectIstio: the app's exit or the sidecar's cuts the request, or neither. Polls make the times uncertain.
func expectIstio(p *podend.Pod, s strategy.Strategy, c circumstances) expectation {
	// An idle connection counts for the sidecar. Envoy closes it, if that comes before SIGKILL.
	isCounted := s.Sidecar == strategy.ExitOnZero && s.Idle
	isClosed := isCounted && c.envoy && p.Grace > envoyIdleFrom
	tr := podend.Traffic{Busy: c.left, Idle: s.Idle && !isClosed, Polls: podend.Late}
	late := p.Course(tr)
	tr.Polls = podend.Early
	early := p.Course(tr)

	e := expectation{lost: c.left > early.Cut, answered: exactly(c.left)}
	if e.lost {
		e.answered = between(early.Cut, late.Cut)
	}
	app, side := early.Containers[0], early.Containers[len(p.Containers)-1]
	if e.lost {
		e.body = terminationBody
		if late.Containers[len(p.Containers)-1].Cut < app.Cut-killTogether-c.allowance {
			e.log = terminationDetails
		}
	}
	// The app may notice that the client of a lost request is gone, or continue the request.
	tr.Busy = min(c.left, early.Cut)
	noticed := p.Course(tr)
	if noticed.Killed || e.lost && early.Killed && early.Cut >= min(app.Kill, side.Kill) {
		yes := true
		e.killed = &yes
	}
	goneOf := func(i int) span { return between(noticed.Containers[i].Gone, late.Containers[i].Gone) }
	sideGone := goneOf(len(p.Containers) - 1)
	switch {
	case isClosed:
		e.why = "an idle connection counts, and Envoy closes it in the last third of its drain time"
		sideGone = between(envoyIdleFrom, envoyIdleTo+time.Second).atLeast(e.answered).atMost(side.Kill)
	case isCounted:
		e.why = "an idle connection counts"
	}
	e.gone = goneOf(0).atLeast(sideGone)
	return e
}
