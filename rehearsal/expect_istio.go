package rehearsal

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// expectIstio computes what cuts the request, if anything does: the app's SIGTERM or the sidecar's exit.
func expectIstio(s strategy.Strategy, c circumstances) expectation {
	grace := s.GraceOr(c.grace)
	appTerm, appKill := ends(at(s.Sleep), grace)
	appCut := appKill
	if c.app == strategy.Exits {
		appCut = appTerm
	}
	sideTerm, sideKill := ends(sidecarHook(s, c), grace)
	sideCut := sideKill
	switch s.Sidecar {
	case strategy.Fixed:
		sideCut = sideTerm.plus(s.TerminationDrain)
		sideCut = span{min(sideCut.from, sideKill.from), min(sideCut.to, sideKill.to)}
	case strategy.IstioNative:
		sideCut = span{appKill.from, appKill.to + 2*time.Second} // it ends after the app
	}
	cut := span{min(appCut.from, sideCut.from), min(appCut.to, sideCut.to)}

	yes := true
	e := expectation{lost: c.left > cut.from, answered: at(c.left)}
	if e.lost {
		e.answered = cut
		if !c.otherGateway {
			e.body = terminationBody
			if sideCut.to < appCut.from-killTogether-c.allowance {
				e.log = terminationDetails
			}
		}
		if cut.from >= min(appKill.from, sideKill.from) {
			e.killed = &yes
		}
	}

	appGone := appTerm
	if c.app != strategy.Exits {
		appGone = appTerm.atLeast(e.answered.atMost(appKill.to))
		if e.lost { // it may continue a request whose client is gone
			appGone.to = max(appGone.to, min(c.left, appKill.to))
		}
	}
	appGone = c.leaves(appGone)
	sideGone := sideCut
	switch {
	case s.Sidecar == strategy.IstioNative:
		sideGone = appGone
	case s.Sidecar == strategy.ExitOnZero && s.Idle && c.envoy && sideKill.from > envoyIdleFrom:
		e.why = "an idle connection counts, and Envoy closes it in the last third of its drain time"
		sideGone = span{envoyIdleFrom, envoyIdleTo + time.Second}.atLeast(e.answered).atMost(sideKill.to)
	case s.Sidecar == strategy.ExitOnZero && s.Idle:
		e.killed = &yes
		e.why = "an idle connection counts"
	case s.Sidecar == strategy.ExitOnZero:
		// It polls once a second, first a second after the minimum drain.
		sideGone = sideTerm.plus(strategy.MinimumDrain + time.Second).atLeast(e.answered)
		sideGone.to += time.Second
		sideGone = sideGone.atMost(sideKill.to)
	}
	e.gone = appGone.atLeast(sideGone)
	return e
}

// sidecarHook is how long the sidecar's preStop hook runs.
func sidecarHook(s strategy.Strategy, c circumstances) span {
	switch {
	case s.Netstat && c.app == strategy.KeepsListener:
		return span{c.left, c.left + time.Second} // it listens until it has finished
	case s.Netstat:
		return span{0, time.Second} // the first poll may come before the app has closed its socket
	case s.Sidecar == strategy.IstioNative:
		return at(0)
	}
	return at(s.Sleep)
}
