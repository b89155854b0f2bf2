package rehearsal

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// expectIstio computes what cuts the request, if anything does: the app's SIGTERM or the sidecar's exit.
func expectIstio(s strategy.Strategy, c circumstances) expectation {
	grace := s.GraceOr(c.grace)
	appTerm, appKill := ends(lag.At(s.Sleep), grace)
	appCut := appKill
	if c.app == strategy.Exits {
		appCut = appTerm
	}
	sideTerm, sideKill := ends(sidecarHook(s, c), grace)
	sideCut := sideKill
	switch s.Sidecar {
	case strategy.Fixed:
		sideCut = sideTerm.Plus(s.TerminationDrain)
		sideCut = lag.Between(min(sideCut.From, sideKill.From), min(sideCut.To, sideKill.To))
	case strategy.IstioNative:
		sideCut = lag.Between(appKill.From, appKill.To+2*time.Second) // it ends after the app
	}
	cut := lag.Between(min(appCut.From, sideCut.From), min(appCut.To, sideCut.To))

	yes := true
	e := expectation{lost: c.left > cut.From, answered: lag.At(c.left)}
	if e.lost {
		e.answered = cut
		if !c.otherGateway {
			e.body = terminationBody
			if sideCut.To < appCut.From-killTogether-c.allowance {
				e.log = terminationDetails
			}
		}
		if cut.From >= min(appKill.From, sideKill.From) {
			e.killed = &yes
		}
	}

	appGone := appTerm
	if c.app != strategy.Exits {
		appGone = appTerm.AtLeast(e.answered.AtMost(appKill.To))
		if e.lost { // it may continue a request whose client is gone
			appGone.To = max(appGone.To, min(c.left, appKill.To))
		}
	}
	appGone = c.leaves(appGone)
	sideGone := sideCut
	switch {
	case s.Sidecar == strategy.IstioNative:
		sideGone = appGone
	case s.Sidecar == strategy.ExitOnZero && s.Idle && c.envoy && sideKill.From > envoyIdleFrom:
		e.why = "an idle connection counts, and Envoy closes it in the last third of its drain time"
		sideGone = lag.Between(envoyIdleFrom, envoyIdleTo+time.Second).AtLeast(e.answered).AtMost(sideKill.To)
	case s.Sidecar == strategy.ExitOnZero && s.Idle:
		e.killed = &yes
		e.why = "an idle connection counts"
	case s.Sidecar == strategy.ExitOnZero:
		// It polls once a second, first a second after the minimum drain.
		sideGone = sideTerm.Plus(strategy.MinimumDrain + time.Second).AtLeast(e.answered)
		sideGone.To += time.Second
		sideGone = sideGone.AtMost(sideKill.To)
	}
	e.gone = appGone.AtLeast(sideGone)
	return e
}

// sidecarHook is how long the sidecar's preStop hook runs.
func sidecarHook(s strategy.Strategy, c circumstances) lag.Span {
	switch {
	case s.Netstat && c.app == strategy.KeepsListener:
		return lag.Between(c.left, c.left+time.Second) // it listens until it has finished
	case s.Netstat:
		return lag.Between(0, time.Second) // the first poll may come before the app has closed its socket
	case s.Sidecar == strategy.IstioNative:
		return lag.At(0)
	}
	return lag.At(s.Sleep)
}
