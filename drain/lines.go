package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The lines that pilot-agent logs when it ends a proxy, word for word: users and their log queries search for them. The
// numbers are also attributes.
const (
	lineStatusServer = "Status server has successfully terminated"
	lineDraining     = "Agent draining Proxy for termination"
	lineDrainFailed  = "Error in invoking drain listeners endpoint: %v"
	lineFixedBegins  = "Graceful termination period is %v, starting..."
	lineFixedEnds    = "Graceful termination period complete, terminating remaining proxies."
	lineMinimumDrain = "Agent draining proxy for %v, then waiting for active connections to terminate..."
	lineChecking     = "Checking for active connections..."
	lineStillActive  = "There are still %d active connections"
	lineNoneActive   = "There are no more active connections. terminating proxy..."
	lineNotAvailable = "downstream_cx_active are not available. This either means there are no " +
		"downstream connection established yet or the stats are not enabled. Skipping active connections check..."
	lineLookFailed    = "unable to get listener stats from Envoy : %v"
	lineRetrying      = "Retrying (%d attempt) to obtain active connections..."
	lineGaveUp        = "Graceful termination logic ended prematurely, error while obtaining downstream_cx_active stat (Max retry %d exceeded)"
	lineDiedEarly     = "Graceful termination logic ended prematurely, envoy process terminated early"
	lineAborting      = "Aborting proxy"
	lineAbortedOK     = "Envoy aborted normally"
	lineAborted       = "Aborted proxy instance"
	lineTerminated    = "Agent has successfully terminated"
	lineHandlingDrain = "handling /drain, starting drain"
	lineHandlingQuit  = "handling /quitquitquit, notifying pilot-agent to exit"
	lineQuit          = "Agent already drained, exiting immediately"
)

// lastcall's own lines: constant messages, with the facts as attributes.
const (
	linePhase        = "drain phase"
	lineUnknown      = "data plane activity unknown; treating open connections as busy"
	lineCapReached   = "new connections still arriving at the drain cap; closing listeners"
	lineLastCall     = "last call: ending open connections"
	lineCancelled    = "no SIGTERM after preStop hook; drain cancelled"
	lineCloseFailed  = "data plane did not close in time; killing it"
	faultArrivals    = "unknown whether clients still connect: drained to the cap of the quiet time, %v"
	faultClose       = "close the data plane: %v"
	faultKill        = "data plane did not end when killed; leaving it to the exit of the process"
	lineFinishing    = "only opaque connections are open; the app ends them after its SIGTERM"
	lineSooner       = "SIGKILL comes before the end of the grace period"
	lineSecondSignal = "second termination signal; making the last call now"
)

// logStillActive writes Istio's line when the number has changed, at most once a second. It returns when the next line
// is due.
func (r *run) logStillActive(now time.Time) time.Time {
	if r.phase != Waiting && r.phase != Finishing || r.Config.Mode != ExitOnZero || !r.activity.Known {
		return never()
	}
	n := r.activity.Busy
	switch next := r.lastLine.Add(time.Second); {
	case n == 0:
		r.activeLogged = 0
	case n == r.activeLogged:
	case now.Before(next):
		return next
	default:
		r.activeLogged, r.lastLine = n, now
		r.IstioLog.Info(fmt.Sprintf(lineStillActive, n), "active", n)
	}
	return never()
}

// noteHolders lists, at most ten times a second, the conversations that delay the exit.
func (r *run) noteHolders() {
	if r.Config.Mode != ExitOnZero || r.activity.Busy == 0 {
		return
	}
	if now := time.Now(); now.Sub(r.lastHolders) >= 100*time.Millisecond {
		r.lastHolders = now
		if held, err := r.open(); err == nil && len(held) > 0 {
			r.report.HeldBy = held
		}
	}
}

// open lists the busy conversations. They are only for the report: after one failure Open is not called again.
func (r *run) open() (names []Conversation, err error) {
	if r.namesFailed != nil {
		return nil, r.namesFailed
	}
	if _, over := r.interrupted(); over {
		return nil, errInterrupted
	}
	names, err = callFor(r, r.callDeadline(namesTimeout), func(ctx context.Context) ([]Conversation, error) {
		return r.Plane.Open(ctx, maxHeldBy)
	})
	if err != nil && !errors.Is(err, errInterrupted) {
		r.namesFailed = err
		r.faultf("list open conversations: %v", err)
	}
	return names, err
}

// faultf records a failure that does not stop the drain.
func (r *run) faultf(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	r.Log.Warn(what)
	r.note(what)
}

const (
	maxHeldBy = 10 // conversations in Report.HeldBy
	maxFaults = 20 // faults in Report.Faults
)

// note keeps a fault for the report: each once, and a limited number, because the report has to fit into a termination
// message.
func (r *run) note(fault string) {
	if len(r.report.Faults) < maxFaults && !slices.Contains(r.report.Faults, fault) {
		r.report.Faults = append(r.report.Faults, fault)
	}
}

// namesTimeout is shorter than callTimeout, since names only improve the report.
const namesTimeout = callTimeout / 4
