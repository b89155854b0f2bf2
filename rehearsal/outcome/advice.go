package outcome

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// What would have saved a request that was lost for a reason, where that does not depend on the phase.
var adviceFor = map[traffic.Failure]string{
	traffic.NoClose: "end the stream in order at SIGTERM: " +
		"the last chunk of an event stream, a close frame 1001 on a WebSocket",
	traffic.Short: "the response has neither a length nor chunks, so its client takes a part for the whole: " +
		"send one of them, and finish before the exit",
	traffic.Late: "no complete response within --timeout: the app hangs after SIGTERM",
}

const (
	// adviceFinish is for a request that was in flight at the app's exit.
	adviceFinish = "the app exits with requests in flight: finish them after SIGTERM, or delay the SIGTERM " +
		"until there are none, as lastcall does"

	// adviceLingers is for a connection that the app kept until SIGKILL, although there was time to finish it.
	adviceLingers = "the app serves its kept connections until SIGKILL: after SIGTERM, send Connection: close with each " +
		"response, close connections without a request, and exit"

	// adviceKept is for a connection that its client had kept and that ended before SIGTERM: by the app's own idle
	// timeout, or because the hook ends at a moment without requests.
	adviceKept = "the client sent it on a connection that it had kept, just as that one was being closed: no hook can " +
		"announce this to clients. Let the app send Connection: close, or use lastcall's sidecar, which does"
)

// advice is the setting that would have saved a request. e is the ending that explains its loss, nil if none does; took
// is how long the undisturbed request takes; isKept: its connection had carried others.
func (r *Rollout) advice(e *Ending, when Phase, why traffic.Failure, took time.Duration, isKept bool) string {
	switch {
	case when == Between:
		return "no pod was ending: a new pod got requests before it could answer them; " +
			"give it a readiness probe that fails until then"
	case e == nil || when == Serving:
		return "not lost by the rollout: the app fails under this load; lower --load, or raise --timeout"
	case when == Killed && e.Cause != "":
		return e.Cause
	case when == Killed && !e.Term.IsZero() && e.Killed.Sub(e.Term) > took+time.Second:
		return adviceLingers
	case when == Killed:
		return fmt.Sprintf("the grace period ended: terminationGracePeriodSeconds of at least %d", r.graceNeeded(e, took))
	case (why == traffic.Refused || when == Gone) && r.Propagation == 0:
		return "clients still used the pod when it no longer listened: " +
			"keep its listener open for some seconds, with a preStop sleep or lastcall"
	case why == traffic.Refused || when == Gone:
		return fmt.Sprintf("clients learn of the deletion up to %s late: "+
			"keep the listener open for that long, with a preStop sleep of %d or lastcall",
			terminal.Seconds(r.Propagation), int(podend.WholeSeconds(r.Propagation+time.Second)/time.Second))
	case why.IsStatus():
		return "the app refuses requests that clients still send, or a proxy had no pod for them: " +
			"continue to serve until the endpoint is gone, fail readiness at most"
	case why == traffic.NoClose && when == Terminating, why == traffic.Short, why == traffic.Late:
		return adviceFor[why]
	case when == InHook && isKept:
		return adviceKept
	case when == InHook:
		return "the app ended a request before its SIGTERM: the preStop hook stops the app too early"
	case r.Propagation > 0 && e.Term.Sub(e.Deleted) > r.Propagation:
		return "no client has the endpoint any longer, but their kept connections still carry requests: " +
			"finish these after SIGTERM, with Connection: close, or use lastcall's sidecar"
	}
	return adviceFinish
}

// graceNeeded is a grace period, in seconds, that holds the hook, the propagation delay and one more request.
func (r *Rollout) graceNeeded(e *Ending, took time.Duration) int {
	hook := time.Duration(0)
	if !e.HookEnded.IsZero() {
		hook = e.HookEnded.Sub(e.Deleted)
	}
	return int(podend.Grace(max(hook, r.Propagation)+took) / time.Second)
}
