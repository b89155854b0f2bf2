package drain

import (
	"context"
	"fmt"
	"time"
)

// exitOnZero is lastcall's own way, from first to last.
func (r *run) exitOnZero() {
	r.drain()
	r.log.Info(fmt.Sprintf(lineMinimumDrain, r.cfg.MinimumDrain), "minimum_drain", r.cfg.MinimumDrain, "quiet_time", r.cfg.QuietTime)

	// Endpoints and load balancers learn late: stay until nobody has come for
	// the quiet time, but do not let one that never learns hold the pod.
	if why := r.await(r.drainEnds, nil); why != reached {
		r.end(why)
		return
	}
	switch now := time.Now(); {
	case !now.Before(r.deadline()):
		r.lastCall() // a minimum drain that is longer than there is time for
		return
	case now.Sub(r.lastArrival) < r.cfg.QuietTime && r.certain:
		r.log.Warn(lineCapReached, "after", now.Sub(r.start).Round(time.Millisecond))
		r.do("stop accepting", r.dp.StopAccepting)
	case r.mayHaveMissed(r.quietFrom()):
		r.faultf(faultArrivals, now.Sub(r.start).Round(time.Millisecond))
		if r.certain {
			r.do("stop accepting", r.dp.StopAccepting)
		}
	}

	for {
		r.enter(Waiting)
		r.log.Info(lineChecking)
		r.do("close idle connections", func(ctx context.Context) error { return r.dp.CloseIdle(ctx, r.cfg.IdleGrace) })
		r.noteHolders()
		if why := r.await(r.deadline, r.free); why != becameTrue {
			r.end(why)
			return
		}
		if n := r.activity.Busy; n > 0 {
			r.log.Info(lineFewActive, "active", n, "exit_at", r.cfg.ExitAt)
		} else {
			r.log.Info(lineNoneActive)
		}
		if r.terminating {
			break
		}
		// A hook began this. The app's SIGTERM is next, then ours; if neither
		// comes, a single container has been restarted and we go on serving.
		if !r.drained() {
			return
		}
		r.look() // at this moment, not at the one of the last poll
		if free, _ := r.free(time.Now()); free {
			break
		}
		// Somebody came between the hook's end and the SIGTERM: wait again.
	}
	r.leave()
}

// drained waits, after a hook, for the SIGTERM that makes the end final. When it
// returns false, the termination has found its end here: another one, or none.
func (r *run) drained() bool {
	r.enter(Drained)
	if r.ending && !r.certain {
		r.reopen() // the hook is answered already
	}
	switch why := r.await(r.takenBackAt, r.isTerminating); why {
	case becameTrue:
		return true
	case reached:
		r.resume()
	default:
		r.end(why)
	}
	return false
}

// leave is the way out when nothing is busy: whoever comes now is refused, which
// is safe to retry; who slipped in before is still served.
func (r *run) leave() {
	r.do("stop accepting", r.dp.StopAccepting)
	r.do("close idle connections", func(ctx context.Context) error { return r.dp.CloseIdle(ctx, 0) })
	if why := r.await(r.deadline, r.noneBusy); why != becameTrue {
		r.end(why)
		return
	}
	if r.activity.Busy > 0 { // no more than ExitAt: they are not waited for, but have a last word
		r.lastCall()
		return
	}
	err := r.call(r.patience(r.cfg.GracePeriod), r.dp.Close)
	if err == nil || r.hasExited() {
		r.report.Verdict = Clean
		return
	}
	if why, over := r.told(); over {
		r.end(why)
		return
	}
	// What does not close by itself is told to, and named if it was busy after
	// all: a clean verdict must not hide that somebody was cut.
	r.faultf(faultClose, err)
	r.lastCall()
}

// resume takes the drain back.
func (r *run) resume() {
	r.log.Warn(lineTakenBack, "after", time.Since(r.start).Round(time.Millisecond))
	r.ending = false
	r.serveAgain("resume")
	if why, over := r.told(); over {
		r.end(why)
		return
	}
	r.report.Verdict = Resumed
}
