package drain

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// exitOnZero is lastcall's own mode, from start to end.
func (r *run) exitOnZero() {
	if !r.acceptLast() {
		return
	}
	for {
		r.closeIdle()
		why := r.await(r.deadline, r.freeOrLeft)
		isFinal := r.terminating()
		if free, _ := r.free(time.Now()); !free && why == conditionMet {
			why = r.leaveToApp()
		}
		if why != conditionMet {
			r.end(why)
			return
		}
		if n := r.activity.Busy; n > 0 {
			r.log.Info(lineFewActive, "active", n, "exit_at", r.cfg.ExitAt)
		} else {
			r.istio.Info(lineNoneActive)
		}
		if isFinal {
			break
		}
		// A hook began this drain. The app's SIGTERM is next, then ours. If neither arrives, a single container has been
		// restarted, and the data plane serves on.
		if !r.drained() {
			return
		}
		r.look() // now, since the last poll may be too old
		if free, _ := r.free(time.Now()); free {
			break
		}
		// A client has connected between the end of the hook and SIGTERM: wait again.
	}
	r.leave()
}

// hookAlone is a hook without an agent, from start to end. The app's SIGTERM, which follows, ends the connections that
// only an app can end, if it finishes its requests.
func (r *run) hookAlone() {
	if !r.acceptLast() {
		return
	}
	r.closeIdle()
	onlyOpaque := func() bool {
		a := r.activity
		return r.cfg.App == AppFinishes && a.Known && a.Opaque > 0 && a.Busy <= a.Opaque
	}
	why := r.await(r.deadline, func(now time.Time) (bool, time.Time) {
		free, at := r.free(now)
		return free || onlyOpaque(), at
	})
	switch {
	case why != conditionMet:
		r.end(why)
	case onlyOpaque():
		r.report.Finish = &Finish{After: Millis(time.Since(r.start)), Opaque: r.activity.Opaque}
		r.report.Verdict = Clean
	default:
		r.leave()
	}
}

// acceptLast is the draining phase. Endpoints and load balancers learn late that the pod ends: clients are accepted
// until none has connected for the quiet time, but not without limit. It returns false if the termination has ended.
func (r *run) acceptLast() bool {
	r.drain()
	r.istio.Info(fmt.Sprintf(lineMinimumDrain, r.cfg.MinimumDrain), "minimum_drain", r.cfg.MinimumDrain,
		"quiet_time", r.cfg.QuietTime)
	if why := r.await(r.drainEnds, nil); why != reached {
		r.end(why)
		return false
	}
	switch now := time.Now(); {
	case !now.Before(r.deadline()):
		r.lastCall() // the minimum drain is longer than the grace period allows
		return false
	case now.Sub(r.lastArrival) < r.cfg.QuietTime && r.requested.Container:
		r.log.Warn(lineCapReached, "after", now.Sub(r.start).Round(time.Millisecond))
		r.do("stop accepting", r.dp.StopAccepting)
	case r.mayHaveMissed(r.quietFrom()):
		r.faultf(faultArrivals, now.Sub(r.start).Round(time.Millisecond))
		if r.requested.Container {
			r.do("stop accepting", r.dp.StopAccepting)
		}
	}
	return true
}

// closeIdle begins to wait for the requests in flight.
func (r *run) closeIdle() {
	r.enter(Waiting)
	r.istio.Info(lineChecking)
	r.do("close idle connections", func(ctx context.Context) error { return r.dp.CloseIdle(ctx, r.cfg.IdleGrace) })
	r.noteHolders()
}

// drained waits, after a hook, for SIGTERM. It returns false if the termination has ended otherwise, or was cancelled.
func (r *run) drained() bool {
	r.enter(Drained)
	if r.ending && !r.requested.Container {
		r.reopen() // the hook has returned already
	}
	switch why := r.await(r.cancelAt, r.hasTerminate); why {
	case conditionMet:
		return true
	case reached:
		r.resume()
	default:
		r.end(why)
	}
	return false
}

// leave ends the data plane when no connection is busy. A client that connects now is refused, which is safe to retry;
// one that has connected just before is still served.
func (r *run) leave() {
	r.do("stop accepting", r.dp.StopAccepting)
	r.do("close idle connections", func(ctx context.Context) error { return r.dp.CloseIdle(ctx, 0) })
	if why := r.await(r.deadline, r.noneBusy); why != conditionMet {
		r.end(why)
		return
	}
	if r.activity.Busy > 0 { // at most ExitAt: they get the last call
		r.lastCall()
		return
	}
	err := r.call(r.callDeadline(r.cfg.GracePeriod), r.dp.Close)
	if err == nil || hasExited(r.dp) {
		r.report.Verdict = Clean
		return
	}
	if why, over := r.interrupted(); over {
		r.end(why)
		return
	}
	// Connections that do not close are ended, and reported if they were busy after all: a clean verdict must not hide a
	// cut.
	r.faultf(faultClose, err)
	r.lastCall()
}

// resume cancels the drain.
func (r *run) resume() {
	r.log.Warn(lineCancelled, "after", time.Since(r.start).Round(time.Millisecond))
	r.ending = false
	if _, over := r.interrupted(); !over {
		if !r.terminating() { // if SIGTERM arrives meanwhile, Resume has no more time than any other call
			r.resuming = cancelling
		}
		err := r.call(time.Now().Add(resumeTimeout), r.dp.Resume)
		if r.resuming = notResuming; err != nil && !errors.Is(err, errInterrupted) {
			r.faultf("resume: %v", err)
		}
	}
	if why, over := r.interrupted(); over {
		r.end(why)
		return
	}
	r.report.Verdict = Resumed
}
