package rehearsal

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// expectLastcall: the client gets the app's response, or a 503 at the last call. The pod ends with the last byte, but not
// before the minimum drain.
func expectLastcall(s strategy.Strategy, c circumstances) expectation {
	grace := s.GraceOr(c.grace)
	lastCall := grace - min(2*time.Second, grace/4)
	no, lag := false, exitLag
	switch {
	case c.envoy && s.Idle:
		lag = envoyExitLagIdle
	case c.envoy:
		lag = envoyExitLag
	}
	if c.left <= lastCall {
		stays := min(strategy.MinimumDrain, lastCall)
		gone := at(max(c.left, stays))
		if lag > slack/2 {
			gone.to += lag
		}
		return expectation{
			answered: at(c.left), gone: c.leaves(gone), lag: lag, stays: stays, killed: &no,
			appAfter: true, appOwn: c.otherApp, idle: s.Idle,
		}
	}
	if c.envoy && s.Sidecar.IsNative() {
		return expectEnvoyNative(s, c, lastCall, grace)
	}
	e := expectation{
		lost: true, answered: span{lastCall, grace}, named: true,
		gone: span{lastCall, grace}, idle: s.Idle,
		why: fmt.Sprintf("the last call of a grace period of %s is at %s", console.Round(grace), console.Round(lastCall)),
	}
	if c.app == strategy.Exits {
		e.killed = &no
	} else {
		// An app that continues a request whose client is gone is killed at the end of the grace period, which counts
		// in whole seconds.
		_, kill := ends(at(lastCall), grace)
		e.gone.to = max(e.gone.to, min(kill.to, max(c.left, grace)))
	}
	switch {
	case c.otherGateway:
	case c.envoy:
		// Envoy cannot be made to answer single requests: they end when it exits. The report names the clients, from the
		// kernel's socket table, which has no requests.
		e.unnamed = true
		e.body, e.log = terminationBody, terminationDetails
	default:
		e.log = viaUpstream
	}
	return e
}

// expectEnvoyNative: the hook's last call reports the remaining clients, and the app gets its SIGTERM. A native sidecar
// stays until the app has exited, and its Envoy cannot end single requests: the app does, or its SIGKILL.
func expectEnvoyNative(s strategy.Strategy, c circumstances, lastCall, grace time.Duration) expectation {
	term, kill := ends(at(lastCall), grace)
	e := expectation{
		lost: true, answered: term, gone: term, named: true, unnamed: true, idle: s.Idle,
		why: fmt.Sprintf("the last call is at %s, and the request ends with the app", console.Round(lastCall)),
	}
	if c.app != strategy.Exits {
		e.lost, e.answered = c.left > kill.from, kill
		if !e.lost {
			e.answered = at(c.left)
		}
		// The sidecar's SIGTERM comes after the app's exit, and at least 2 s before its SIGKILL.
		e.gone = span{e.answered.from, e.answered.to + 2*time.Second}
	}
	switch {
	case c.otherGateway || !e.lost:
	case c.app == strategy.Exits:
		e.body, e.log = terminationBody, viaUpstream // the sidecar's own response
	default: // the sidecar's or the gateway's: both end at the same moment
		e.body = terminationBody
	}
	return e
}
