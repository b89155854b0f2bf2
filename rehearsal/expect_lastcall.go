package rehearsal

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// expectLastcall: the client gets the app's response, or a 503 at the last call. The pod ends with the last byte, but not
// before the minimum drain.
func expectLastcall(s strategy.Strategy, c circumstances) expectation {
	grace := s.GraceOr(c.grace)
	left := 2 * time.Second // for SIGKILL
	if s.Sidecar.IsHooks() {
		left = 5 * time.Second // for the app
	}
	lastCall := grace - min(left, grace/4)
	no, limit := false, exitLag
	switch {
	case c.envoy && s.Idle:
		limit = envoyExitLagIdle
	case c.envoy:
		limit = envoyExitLag
	}
	if c.left <= lastCall {
		stays := min(strategy.MinimumDrain, lastCall)
		gone := lag.At(max(c.left, stays))
		if limit > slack/2 {
			gone.To += limit
		}
		return expectation{
			answered: lag.At(c.left), gone: c.leaves(gone), lag: limit, stays: stays, killed: &no,
			appAfter: true, appOwn: c.otherApp, idle: s.Idle,
		}
	}
	if c.envoy && (s.Sidecar.IsNative() || s.Sidecar.IsHooks()) {
		return expectEnvoyNative(s, c, lastCall, grace)
	}
	e := expectation{
		lost: true, answered: lag.Between(lastCall, grace), named: true,
		gone: lag.Between(lastCall, grace), idle: s.Idle,
		why: fmt.Sprintf("the last call of a grace period of %s is at %s", console.Round(grace), console.Round(lastCall)),
	}
	if c.app == strategy.Exits {
		e.killed = &no
	} else {
		// An app that continues a request whose client is gone is killed at the end of the grace period, which counts
		// in whole seconds.
		_, kill := ends(lag.At(lastCall), grace)
		e.gone.To = max(e.gone.To, min(kill.To, max(c.left, grace)))
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
	term, kill := ends(lag.At(lastCall), grace)
	e := expectation{
		lost: true, answered: term, gone: term, named: true, unnamed: true, idle: s.Idle,
		why: fmt.Sprintf("the last call is at %s, and the request ends with the app", console.Round(lastCall)),
	}
	if s.Sidecar.IsHooks() {
		e.why = fmt.Sprintf("the hook's deadline is at %s, and the request ends with the app", console.Round(lastCall))
	}
	if c.app != strategy.Exits {
		e.lost, e.answered = c.left > kill.From, kill
		if !e.lost {
			e.answered = lag.At(c.left)
		}
		// The sidecar's SIGTERM comes after the app's exit, and at least 2 s before its SIGKILL.
		e.gone = lag.Between(e.answered.From, e.answered.To+2*time.Second)
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
