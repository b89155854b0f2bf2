package drain

import (
	"cmp"
	"context"
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
		r.IstioLog.Info(lineNoneActive)
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

// acceptLast is the draining phase. Endpoints and load balancers learn late that the pod ends: clients are accepted
// until none has connected for the quiet time, but not without limit. It returns false if the termination has ended.
func (r *run) acceptLast() bool {
	r.drain()
	r.IstioLog.Info(fmt.Sprintf(lineMinimumDrain, r.Config.MinimumDrain), "minimum_drain", r.Config.MinimumDrain,
		"quiet_time", r.Config.QuietTime)
	if why := r.await(r.drainEnds, nil); why != reached {
		r.end(why)
		return false
	}
	switch now := time.Now(); {
	case !now.Before(r.deadline()):
		r.lastCall() // the minimum drain is longer than the grace period allows
		return false
	case now.Sub(r.lastArrival) < r.Config.QuietTime && r.requested.Container:
		r.Log.Warn(lineCapReached, "after", now.Sub(r.start).Round(time.Millisecond))
		r.do("stop accepting", r.Plane.StopAccepting)
	case r.mayHaveMissed(r.quietFrom()):
		r.faultf(faultArrivals, now.Sub(r.start).Round(time.Millisecond))
		if r.requested.Container {
			r.do("stop accepting", r.Plane.StopAccepting)
		}
	}
	return true
}

// closeIdle begins to wait for the requests in flight.
func (r *run) closeIdle() {
	r.enter(Waiting)
	r.IstioLog.Info(lineChecking)
	r.do("close idle connections", func(ctx context.Context) error { return r.Plane.CloseIdle(ctx, r.Config.IdleGrace) })
	r.noteHolders()
}

// leave ends the data plane when no connection is busy. A client that connects now is refused, which is safe to retry;
// one that has connected just before is still served.
func (r *run) leave() {
	r.do("stop accepting", r.Plane.StopAccepting)
	r.do("close idle connections", func(ctx context.Context) error { return r.Plane.CloseIdle(ctx, 0) })
	if why := r.await(r.deadline, r.noneBusy); why != conditionMet {
		r.end(why)
		return
	}
	err := r.call(r.callDeadline(r.Config.GracePeriod), r.Plane.Close)
	if err == nil || hasEnded(r.Plane.Exited()) {
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

// free is true when no connection is busy, and no idle one is so new that its client may be about to use it.
func (r *run) free(now time.Time) (bool, time.Time) {
	if none, _ := r.noneBusy(now); !none {
		return false, never()
	}
	at := r.lastArrival.Add(r.Config.IdleGrace)
	return r.activity.Connections == 0 || !now.Before(at), at
}

// noneBusy is true when no connection is busy.
func (r *run) noneBusy(time.Time) (bool, time.Time) {
	return r.activity.Known && r.activity.Busy == 0, never()
}

// hasTerminate is true after SIGTERM.
func (r *run) hasTerminate(time.Time) (bool, time.Time) { return r.terminating(), never() }

// drainEnds is when the draining phase ends, unless a client connects before: after the minimum drain and the quiet
// time since the last arrival, but no later than the cap.
func (r *run) drainEnds() time.Time {
	ends, most := r.quietFrom(), r.start.Add(r.Config.DrainCap())
	if !r.lookedAt.Before(ends) && r.mayHaveMissed(ends) {
		return most // unless a later Activity is complete
	}
	return earlier(ends, most)
}

// quietFrom is when the quiet time will have passed, unless a client connects before.
func (r *run) quietFrom() time.Time {
	return later(r.lastArrival.Add(r.Config.QuietTime), r.start.Add(r.Config.MinimumDrain))
}

// mayHaveMissed is true if clients may have connected before at without being counted yet.
func (r *run) mayHaveMissed(at time.Time) bool {
	return r.Config.QuietTime > 0 && !r.activity.ArrivalsAsOf.IsZero() && r.activity.ArrivalsAsOf.Before(at)
}

// end ends the data plane for the reason that ended a wait. reached means the deadline.
func (r *run) end(why reason) {
	switch why {
	case exited:
		r.IstioLog.Warn(lineDiedEarly)
		r.report.Verdict = Crashed
	case stopNow:
		if r.requested.Exit == Quit {
			r.IstioLog.Info(lineQuit)
		}
		r.report.Verdict = r.atOnce()
		r.killDataPlane()
	default: // reached or lastCallNow
		r.lastCall()
	}
}

// lastCall ends the open conversations, each in the way of its protocol.
func (r *run) lastCall() {
	r.enter(LastCall)
	r.Log.Warn(lineLastCall, "busy", r.activity.Busy, "known", r.activity.Known)
	r.ending = true

	// Half of the time left is for the endings, a quarter for a data plane that is slow to return, the rest for the last
	// bytes to reach the clients. It is at most the margin: when Close has failed, there may be minutes left.
	left := min(max(0, time.Until(r.killBy())), r.Config.margin())
	open, err := callFor(r, time.Now().Add(left*3/4), func(ctx context.Context) ([]Conversation, error) {
		return r.Plane.LastCall(ctx, left/2)
	})
	r.report.Open = append(r.report.Open, open...) // a hook's last call may have been before
	verdict := Clean
	if len(r.report.Open) > 0 {
		verdict = Cut
	}
	if why, over := r.interrupted(); over {
		if r.end(why); why == stopNow && verdict == Cut {
			r.report.Verdict = Cut // a cut remains a cut
		}
		return
	}
	if err != nil {
		r.faultf("last call: %v", err)
		verdict = Cut // or unknown
	}

	// Only a hook has begun this. Its container is killed in a moment, with its open connections, but the pod may remain.
	if !r.terminating() {
		if !r.drained() {
			return
		}
		if r.reopened { // a last call for later connections, too
			r.reopened = false
			r.lastCall()
			return
		}
	}
	r.finish(verdict)
}

// finish closes the data plane in an orderly way within the rest of the grace period, and kills it if that fails.
func (r *run) finish(v Verdict) {
	err := r.call(r.killBy(), r.Plane.Close)
	switch {
	case err == nil || hasEnded(r.Plane.Exited()):
	case r.requested.Exit != "" || r.ctx.Err() != nil:
		if v == Clean {
			v = r.atOnce()
		}
		r.killDataPlane()
	default:
		r.faultf(faultClose, err)
		r.Log.Warn(lineCloseFailed)
		r.killDataPlane()
	}
	r.report.Verdict = v
}

// cutBy lists the conversations that the program of the data plane has cut.
func cutBy(p DataPlane) []Conversation {
	if c, ok := p.(Cutter); ok {
		return c.Cut()
	}
	return nil
}

// atOnce is the verdict of an end without a drain: Quit also when ctx has ended.
func (r *run) atOnce() Verdict { return cmp.Or(r.requested.Exit, Quit) }

// hookAlone is a hook without an agent, from start to end. The app's SIGTERM, which follows, ends the connections that
// only an app can end, if it finishes its requests.
func (r *run) hookAlone() {
	if !r.acceptLast() {
		return
	}
	r.closeIdle()
	onlyOpaque := func() bool {
		a := r.activity
		return r.Config.App == AppFinishes && a.Known && a.Opaque > 0 && a.Busy <= a.Opaque
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
