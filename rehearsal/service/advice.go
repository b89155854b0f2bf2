package service

import (
	"fmt"
	"math"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

// fix states what would have saved requests that were lost by a reason in a phase.
func (t *trial) fix(ref load.Reference, why load.Reason, when outcome.Phase) string {
	switch {
	case when == outcome.Serving || when == outcome.Elsewhere:
		return "not lost by the rollout: the app fails under this load; lower --load, or raise --timeout"
	case when == outcome.Killed:
		return fmt.Sprintf("the grace period ended: terminationGracePeriodSeconds of at least %d", t.graceNeeded(ref))
	case why == load.Refused || why == load.Unavailable && when == outcome.Gone:
		return fmt.Sprintf("clients learn of the deletion up to %s late: keep the listener open for that long, with a preStop sleep of %d or lastcall",
			console.Round(t.options.Propagation.To), int(math.Ceil((t.options.Propagation.To + time.Second).Seconds())))
	case why.IsStatus():
		return "the app refuses requests that clients still send: continue to serve until the endpoint is gone, fail readiness at most"
	case why == load.NoClose && when == outcome.Terminating, why == load.Short, why == load.Late:
		return outcome.Advice[why]
	case when == outcome.InHook:
		return "the app ended a request before its SIGTERM: the preStop hook stops the app too early"
	case t.end.App.Terminated.Sub(t.deleted) > t.options.Propagation.To:
		return "no client has the endpoint any longer, but their kept connections still carry requests: finish these after SIGTERM, with Connection: close"
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
	return max(int(math.Ceil(need.Seconds())), int(t.options.Pod.Grace/time.Second)+1)
}
