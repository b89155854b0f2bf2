package rehearsal

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// expectLastcall: answered when the app has answered, or told so at the last
// call; the pod leaves with the last byte, but not before the minimum drain.
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
	if c.envoy && s.Way.IsNative() {
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
		// An app that goes on with what nobody waits for any more is killed,
		// at what was left of the grace period in whole seconds.
		_, kill := ends(at(lastCall), grace)
		e.gone.to = max(e.gone.to, min(kill.to, max(c.left, grace)))
	}
	switch {
	case c.otherGateway:
	case c.envoy:
		// Envoy cannot be told to answer single requests: they end with it, and
		// the kernel, which knows no requests, says who they were.
		e.unnamed = true
		e.body, e.log = terminationBody, terminationDetails
	default:
		e.log = viaUpstream
	}
	return e
}

// expectEnvoyNative: a hook's last call names who is left and lets the app's
// SIGTERM come, but a native sidecar stays until the app is gone, and its Envoy
// cannot end single requests: the app does, or its SIGKILL.
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
		// The sidecar's SIGTERM comes after the app's end, and leaves it 2 s at least.
		e.gone = span{e.answered.from, e.answered.to + 2*time.Second}
	}
	switch {
	case c.otherGateway || !e.lost:
	case c.app == strategy.Exits:
		e.body, e.log = terminationBody, viaUpstream // the sidecar's own words
	default: // the sidecar's or the gateway's: both go at the same moment
		e.body = terminationBody
	}
	return e
}
