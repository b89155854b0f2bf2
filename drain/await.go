package drain

import "time"

// reason is why await returned.
type reason int

const (
	reached      reason = iota // the given time
	conditionMet               // the condition is true
	lastCallNow                // second SIGTERM, or a notice
	exited                     // the data plane has ended by itself
	stopNow                    // quitquitquit, or ctx ended
)

// condition reports whether a wait may end. If it only depends on time, at is when it will be true, otherwise zero.
// Both results belong to one reading of the clock: between two readings the moment could pass unnoticed.
type condition func(now time.Time) (met bool, at time.Time)

// never is a time that is not reached.
func never() time.Time { return time.Time{} }

// await waits until the time that until returns, or until met returns true. All events of a termination are received
// here and in call: signals, the end of the data plane, changes of activity. After each event until and met are called
// again, because a new connection moves the end of the drain.
//
// Events that occur at the same instant are handled in this order: the end of the data plane, signals, the condition,
// the clock.
func (r *run) await(until func() time.Time, met condition) reason {
	clock := time.NewTimer(0)
	defer clock.Stop()
	poll := time.NewTicker(r.cfg.PollInterval)
	defer poll.Stop()

	for r.look(); ; {
		if why, over := r.interrupted(); over {
			return why
		}
		now := time.Now()
		var wake time.Time
		if met != nil {
			is, at := met(now)
			if is {
				return conditionMet
			}
			wake = at
		}
		if ends := until(); !ends.IsZero() {
			if !now.Before(ends) {
				return reached
			}
			wake = sooner(wake, ends)
		}
		wake = sooner(wake, r.logStillActive(now))

		var timer <-chan time.Time
		if !wake.IsZero() {
			clock.Reset(time.Until(wake))
			timer = clock.C
		}
		// A data plane that pushes is looked at after each change. One that cannot, or whose last activity is unknown, is
		// polled.
		var changes <-chan struct{}
		var again <-chan time.Time
		if r.cfg.Mode == ExitOnZero {
			changes = r.dp.Changes()
			if changes == nil || r.drainFailed || !r.activity.Known {
				again = poll.C
			}
		}
		select {
		case <-timer:
			r.look() // a client may have connected at this moment
		case <-changes:
			r.look()
		case <-again:
			r.look()
		case <-r.dp.Exited():
		case <-r.ctx.Done():
		case s := <-r.signals:
			r.receive(s)
		}
	}
}

// free is true when no connection is busy, and no idle one is so new that its client may be about to use it.
func (r *run) free(now time.Time) (bool, time.Time) {
	if none, _ := r.noneBusy(now); !none {
		return false, never()
	}
	at := r.lastArrival.Add(r.cfg.IdleGrace)
	return r.activity.Connections == 0 || !now.Before(at), at
}

// noneBusy is true when no more connections are busy than the exit allows.
func (r *run) noneBusy(time.Time) (bool, time.Time) {
	return r.activity.Known && r.activity.Busy <= r.cfg.ExitAt, never()
}

// hasTerminate is true after SIGTERM.
func (r *run) hasTerminate(time.Time) (bool, time.Time) { return r.terminating(), never() }
