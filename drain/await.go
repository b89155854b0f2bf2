package drain

import "time"

// reason is why a wait ended.
type reason int

const (
	reached    reason = iota // the moment that was waited for has come
	becameTrue               // the condition has come true
	hurried                  // last call now: second SIGTERM, or a notice
	exited                   // the data plane has ended by itself
	told                     // quitquitquit, or ctx ended
)

// condition says whether what is waited for is true at now. When only time is
// missing, at is the moment at which it will be; else at is zero. Both are
// judged by one reading of the clock: between two of them the moment could pass
// unseen.
type condition func(now time.Time) (met bool, at time.Time)

// never is a moment that does not come.
func never() time.Time { return time.Time{} }

// await waits until the moment that until gives, or until met says true.
// Everything that can happen to a termination is heard here, and only here and
// in call: signals, the end of the data plane, changes of activity. until and
// met are asked anew after each of them, because an arrival moves the end of the
// drain.
//
// What comes at the same instant is taken in the order of its weight: the data
// plane's own end, a signal, the condition, the clock.
func (r *run) await(until func() time.Time, met condition) reason {
	clock := time.NewTimer(0)
	defer clock.Stop()
	poll := time.NewTicker(r.cfg.PollInterval)
	defer poll.Stop()

	for r.look(); ; {
		if why, over := r.told(); over {
			return why
		}
		now := time.Now()
		var wake time.Time
		if met != nil {
			is, at := met(now)
			if is {
				return becameTrue
			}
			wake = at
		}
		if ends := until(); !ends.IsZero() {
			if !now.Before(ends) {
				return reached
			}
			wake = sooner(wake, ends)
		}
		wake = sooner(wake, r.sayStillActive(now))

		var ring <-chan time.Time
		if !wake.IsZero() {
			clock.Reset(time.Until(wake))
			ring = clock.C
		}
		// A data plane that pushes is looked at when it says so; one that
		// cannot, or whose last answer was none, is asked again and again.
		var changes <-chan struct{}
		var again <-chan time.Time
		if r.cfg.Mode == ExitOnZero {
			changes = r.dp.Changes()
			if changes == nil || r.mute || !r.activity.Known {
				again = poll.C
			}
		}
		select {
		case <-ring:
			r.look() // somebody may have come at this very moment
		case <-changes:
			r.look()
		case <-again:
			r.look()
		case <-r.dp.Exited():
		case <-r.ctx.Done():
		case s := <-r.signals:
			r.hear(s)
		}
	}
}

// free is true when nothing is busy and no idle connection is so fresh that its
// client may be about to use it.
func (r *run) free(now time.Time) (bool, time.Time) {
	if none, _ := r.noneBusy(now); !none {
		return false, never()
	}
	at := r.lastArrival.Add(r.cfg.IdleGrace)
	return r.activity.Connections == 0 || !now.Before(at), at
}

// noneBusy is true when nothing is busy that holds the exit, as far as is known.
func (r *run) noneBusy(time.Time) (bool, time.Time) {
	return r.activity.Known && r.activity.Busy <= r.cfg.ExitAt, never()
}

// isTerminating is true when SIGTERM has come.
func (r *run) isTerminating(time.Time) (bool, time.Time) { return r.terminating, never() }
