package rehearsal

import (
	"fmt"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// expectLastcall: the client gets the app's response, or a 503 at the last call. The pod ends with the last byte, but
// not before the minimum drain.
func expectLastcall(p *podend.Pod, s strategy.Strategy, c circumstances) expectation {
	ending := p.Course(podend.Traffic{Busy: c.left, Idle: s.Idle})
	no, limit := false, exitLag
	switch {
	case c.envoy && s.Idle:
		limit = envoyExitLagIdle
	case c.envoy:
		limit = envoyExitLag
	}
	if c.left <= p.LastCall {
		gone := exactly(ending.Gone)
		if limit > slack/2 {
			gone.to += limit
		}
		return expectation{
			answered: exactly(c.left), gone: gone, lag: limit, stays: min(drain.DefaultMinimumDrain, p.LastCall),
			killed: &no, appAfter: true, idle: s.Idle,
		}
	}
	if c.envoy && (s.Sidecar.IsNative() || s.Sidecar.IsHooks()) {
		return expectEnvoyNative(p, s, c, ending)
	}
	e := expectation{
		lost: true, answered: span{ending.Cut, p.Grace}, named: true,
		gone: span{ending.Cut, p.Grace}, idle: s.Idle,
		why: fmt.Sprintf("the last call of a grace period of %s is at %s",
			terminal.Seconds(p.Grace), terminal.Seconds(p.LastCall)),
	}
	if c.app == strategy.Exits {
		e.killed = &no
	} else {
		// An app may continue a request whose client is gone until SIGKILL.
		e.gone.to = max(e.gone.to, min(ending.Containers[0].Kill, max(c.left, p.Grace)))
	}
	if c.envoy {
		// Envoy cannot be made to answer single requests: they end when it exits. The report names the clients, from
		// the kernel's socket table, which has no requests.
		e.unnamed = true
		e.body, e.log = terminationBody, terminationDetails
	} else {
		e.log = viaUpstream
	}
	return e
}

// expectEnvoyNative: the hook's last call reports the remaining clients, and the app gets its SIGTERM. A native sidecar
// stays until the app has exited, and its Envoy cannot end single requests: the app does, or its SIGKILL.
func expectEnvoyNative(p *podend.Pod, s strategy.Strategy, c circumstances, ending podend.Course) expectation {
	limit := "the last call"
	if s.Sidecar.IsHooks() {
		limit = "the hook's deadline"
	}
	e := expectation{
		lost: c.left > ending.Cut, answered: exactly(min(c.left, ending.Cut)), named: true, unnamed: true, idle: s.Idle,
		why: fmt.Sprintf("%s is at %s, and the request ends with the app", limit, terminal.Seconds(p.LastCall)),
	}
	e.gone = e.answered
	if c.app != strategy.Exits {
		e.gone.to += drain.LeastGrace // the sidecar's SIGTERM comes after the app's exit
	}
	switch {
	case !e.lost:
	case c.app == strategy.Exits:
		e.body, e.log = terminationBody, viaUpstream // the sidecar's own response
	default: // the sidecar's or the gateway's: both end at the same moment
		e.body = terminationBody
	}
	return e
}
