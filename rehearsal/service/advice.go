package service

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

// fix states what would have saved requests that were lost by a reason in a phase; kept: on a connection that had carried
// others.
func (t *trial) fix(ref load.Reference, why load.Reason, when outcome.Phase, kept bool) string {
	switch {
	case when == outcome.Serving || when == outcome.Elsewhere:
		return "not lost by the rollout: the app fails under this load; lower --load, or raise --timeout"
	case when == outcome.Killed && t.ignores() != "":
		return t.ignores()
	case when == outcome.Killed && t.end.App.Killed.Sub(t.end.App.Terminated) > ref.Took+time.Second:
		return outcome.AdviceLingers
	case when == outcome.Killed:
		return fmt.Sprintf("the grace period ended: terminationGracePeriodSeconds of at least %d", t.graceNeeded(ref))
	case why == load.Refused || why == load.Unavailable && when == outcome.Gone:
		return fmt.Sprintf("clients learn of the deletion up to %s late: keep the listener open for that long, with a preStop sleep of %d or lastcall",
			console.Round(t.options.Propagation.To), int(math.Ceil((t.options.Propagation.To + time.Second).Seconds())))
	case why.IsStatus():
		return "the app refuses requests that clients still send: continue to serve until the endpoint is gone, fail readiness at most"
	case why == load.NoClose && when == outcome.Terminating, why == load.Short, why == load.Late:
		return outcome.Advice[why]
	case when == outcome.InHook && kept:
		return outcome.AdviceKept
	case when == outcome.InHook:
		return "the app ended a request before its SIGTERM: the preStop hook stops the app too early"
	case t.end.App.Terminated.Sub(t.deleted) > t.options.Propagation.To:
		return "no client has the endpoint any longer, but their kept connections still carry requests: finish these after SIGTERM, with Connection: close, or use lastcall's sidecar"
	}
	return outcome.AdviceFinish
}

// graceNeeded is a grace period, in seconds, that holds the hook, the propagation delay and one more request.
func (t *trial) graceNeeded(ref load.Reference) int {
	hook := time.Duration(0)
	if h := t.end.App; !h.HookBegan.IsZero() && !h.HookEnded.IsZero() {
		hook = h.HookEnded.Sub(h.HookBegan)
	}
	need := max(hook, t.options.Propagation.To) + ref.Took + 2*time.Second
	return int(math.Ceil(need.Seconds()))
}

// ignores is why the app did not end at its stop signal, and how it would; empty if it did, or tried to.
func (t *trial) ignores() string {
	program := t.end.Ignored
	if program == "" {
		return ""
	}
	return node.IgnoredCause(program, cmp.Or(t.options.Pod.StopSignal, unix.SIGTERM))
}

// cause is a property of the app that shows at its end whether or not requests were lost; empty: none.
func (t *trial) cause() string {
	if t.end.AppInit == node.Imitated && t.end.AppExit == "SIGTERM" && t.end.App.Killed.IsZero() {
		return "SIGTERM ended the app, which is not PID 1 here: as PID 1 of a container Node, and each program whose only " +
			"handler sends the signal again, runs until SIGKILL"
	}
	return t.ignores()
}
