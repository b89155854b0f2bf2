package drain

import (
	"fmt"
	"time"
)

// fixed is pilot-agent's default: sleep, then kill. After a hook the kill waits for SIGTERM: hooks return after the
// sleep, and the app gets its SIGTERM then. Istio's own native sidecar does not wait (see istioDrained).
func (r *run) fixed() {
	r.drain()
	wait := r.Config.TerminationDrain
	r.IstioLog.Info(fmt.Sprintf(lineFixedBegins, wait), "termination_drain", wait)
	ends := func() time.Time { return r.start.Add(wait) }
	if why := r.await(ends, nil); why != reached && why != lastCallNow {
		r.end(why)
		return
	}
	r.IstioLog.Info(lineFixedEnds)
	if !r.terminating() && !r.drained() {
		return
	}
	r.abort()
	r.report.Verdict = Ended
}

// istioExitOnZero is pilot-agent's EXIT_ON_ZERO_ACTIVE_CONNECTIONS: it polls once a second, counts connections, gives
// up after five failed polls or one unknown count, and has no deadline. The only difference: a crash of the data plane
// is noticed at once, not at the next tick.
func (r *run) istioExitOnZero() {
	r.drain()
	r.IstioLog.Info(fmt.Sprintf(lineMinimumDrain, r.Config.MinimumDrain), "minimum_drain", r.Config.MinimumDrain)
	tick := r.start.Add(r.Config.MinimumDrain)
	nextTick := func() time.Time { return tick }
	if why := r.await(nextTick, nil); why != reached {
		r.end(why)
		return
	}
	r.enter(Waiting)
	r.IstioLog.Info(lineChecking)
	for retries := 0; ; {
		// The first poll is one tick after the minimum drain. Of the ticks during a poll that hung, one is made up for, as
		// by time.Ticker.
		tick = tick.Add(IstioPollInterval)
		for now := time.Now(); !tick.Add(IstioPollInterval).After(now); {
			tick = tick.Add(IstioPollInterval)
		}
		if why := r.await(nextTick, nil); why != reached {
			r.end(why)
			return
		}
		a, err := callFor(r, r.callDeadline(callTimeout), r.Plane.Activity)
		if why, over := r.interrupted(); over {
			r.end(why)
			return
		}
		switch {
		case err != nil:
			what := fmt.Sprintf(lineLookFailed, err)
			r.IstioLog.Error(what)
			r.note(what)
			if retries++; retries < istioMaxRetries {
				r.IstioLog.Warn(fmt.Sprintf(lineRetrying, retries), "attempt", retries)
				continue
			}
			r.IstioLog.Warn(fmt.Sprintf(lineGaveUp, istioMaxRetries))
			r.activity.Known = false
		case !a.Known:
			r.IstioLog.Info(lineNotAvailable)
			r.activity.Known = false
		case a.Connections == 0:
			r.record(a)
			r.IstioLog.Info(lineNoneActive)
		default:
			retries = 0
			r.record(a)
			r.IstioLog.Info(fmt.Sprintf(lineStillActive, a.Connections), "active", a.Connections)
			continue
		}
		r.abort()
		return
	}
}

// istioDrained is Istio's native sidecar after its preStop hook: it drains without limit, and SIGTERM, which follows
// the exit of the app, ends it at once.
func (r *run) istioDrained() {
	r.IstioLog.Info(lineHandlingDrain)
	r.drain()
	r.enter(Drained)
	if why := r.await(never, r.hasTerminate); why != conditionMet {
		r.end(why)
		return
	}
	r.IstioLog.Info(lineQuit)
	r.abort()
}

// abort kills the data plane with all open connections, as pilot-agent does. They are listed first, for the report: an
// unknown list counts as cut, unless the last Activity had no connection at all.
func (r *run) abort() {
	r.ending = true
	r.IstioLog.Warn(lineAborting)
	var err error
	r.report.Open, err = r.open()
	r.report.Verdict = Clean
	empty := r.activity.Known && r.activity.Connections == 0
	if len(r.report.Open) > 0 || err != nil && !empty {
		r.report.Verdict = Cut
	}
	r.killDataPlane()
	r.IstioLog.Info(lineAbortedOK)
	r.IstioLog.Warn(lineAborted)
}
