package drain

import (
	"errors"
	"fmt"
	"time"
)

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

const (
	heldByMost   = 10 // conversations in Report.HeldBy
	faultsAtMost = 20 // faults in Report.Faults
)

// look updates the activity. A failed call is never taken for no activity.
func (r *run) look() {
	if r.cfg.Mode != ExitOnZero {
		return // Istio's modes poll when Istio does
	}
	if _, over := r.interrupted(); over {
		return // the activity no longer matters
	}
	began := time.Now()
	a, err := callFor(r, r.callDeadline(callTimeout), r.dp.Activity)
	switch {
	case errors.Is(err, errInterrupted):
	case err != nil:
		r.lookFailed(err.Error())
	case !a.Known:
		r.lookFailed("not known to the data plane")
	default:
		r.unknown, r.lookedAt = false, began
		r.record(a)
	}
}

// lookFailed logs, at most once a second, that the activity has become unknown.
func (r *run) lookFailed(why string) {
	r.activity.Known = false
	if r.unknown {
		return
	}
	r.note("activity unknown: " + why)
	if now := time.Now(); now.Sub(r.unknownLogged) >= time.Second {
		r.unknown, r.unknownLogged = true, now
		r.log.Warn(lineUnknown, "error", why)
	}
}

// record takes the result of a successful call of Activity.
func (r *run) record(a Activity) {
	switch {
	case !r.looked:
		r.looked, r.firstSeen, r.firstRaced, r.firstFailed = true, a.Arrivals, a.Raced, a.Failed
	case a.Arrivals != r.activity.Arrivals:
		r.lastArrival = time.Now()
	}
	r.report.Late, r.report.Raced = a.Arrivals-r.firstSeen, a.Raced-r.firstRaced
	r.report.Failed = a.Failed - r.firstFailed
	if f := r.report.Finish; f != nil {
		f.OpaqueEnds = a.OpaqueEnds.since(r.beforeFinish)
	}
	changed := a != r.activity
	r.activity = a
	if !changed {
		return
	}
	if r.phase == Waiting || r.phase == Finishing {
		r.noteHolders()
	}
	if r.watch.Activity != nil {
		r.watch.Activity(a)
	}
}

// logStillActive writes Istio's line when the number has changed, at most once a second. It returns when the next line
// is due.
func (r *run) logStillActive(now time.Time) time.Time {
	if r.phase != Waiting && r.phase != Finishing || r.cfg.Mode != ExitOnZero || !r.activity.Known {
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
		r.istio.Info(fmt.Sprintf(lineStillActive, n), "active", n)
	}
	return never()
}

// noteHolders lists, at most ten times a second, the conversations that delay the exit.
func (r *run) noteHolders() {
	if r.cfg.Mode != ExitOnZero || r.activity.Busy == 0 {
		return
	}
	if now := time.Now(); now.Sub(r.lastHolders) >= 100*time.Millisecond {
		r.lastHolders = now
		if held, err := r.open(); err == nil && len(held) > 0 {
			r.report.HeldBy = held
		}
	}
}

// drainEnds is when the draining phase ends, unless a client connects before: after the minimum drain and the quiet
// time since the last arrival, but no later than the cap.
func (r *run) drainEnds() time.Time {
	ends, most := r.quietFrom(), r.start.Add(r.cfg.DrainCap())
	if !r.lookedAt.Before(ends) && r.mayHaveMissed(ends) {
		return most // unless a later Activity is complete
	}
	return earlier(ends, most)
}

// quietFrom is when the quiet time will have passed, unless a client connects before.
func (r *run) quietFrom() time.Time {
	return later(r.lastArrival.Add(r.cfg.QuietTime), r.start.Add(r.cfg.MinimumDrain))
}

// mayHaveMissed is true if clients may have connected before at without being counted yet.
func (r *run) mayHaveMissed(at time.Time) bool {
	return r.cfg.QuietTime > 0 && !r.activity.ArrivalsAsOf.IsZero() && r.activity.ArrivalsAsOf.Before(at)
}

// deadline is the moment of the last call.
func (r *run) deadline() time.Time { return r.start.Add(r.cfg.LastCallAfter()) }

// graceEnds is the moment of the kubelet's SIGKILL.
func (r *run) graceEnds() time.Time { return r.start.Add(r.cfg.GracePeriod) }

// shorten moves SIGKILL forward to the moment that Termination.Deadline returns. All other moments follow from it.
func (r *run) shorten() {
	if r.sigkill == nil || r.cfg.Mode != ExitOnZero {
		return
	}
	at, from := r.sigkill()
	if grace := at.Sub(r.start); grace > 0 && grace < r.cfg.GracePeriod {
		r.cfg.GracePeriod = grace
		r.cfg.Deadline = min(r.cfg.Deadline, grace-r.cfg.margin())
		r.report.Deadline, r.report.DeadlineFrom = Millis(grace), from
		r.log.Warn(lineSooner, "deadline_in", time.Until(at).Round(time.Millisecond), "deadline_from", from)
	}
}

// cancelAt is when a drain is cancelled if no SIGTERM has followed the hook. A native sidecar gets its SIGTERM after
// the exit of the app, which may take the whole grace period and, if the hook has used that up, the kubelet's two
// seconds more; and the kubelet of a busy node is late.
func (r *run) cancelAt() time.Time { return r.graceEnds().Add(cancelSlack) }

const cancelSlack = 5 * time.Second

// least is LeastGrace, but no more than the margin.
func (r *run) least() time.Duration { return min(r.cfg.margin(), LeastGrace) }

// killBy is when the attempt at an orderly end is abandoned: an eighth of the margin before the kubelet's SIGKILL, so
// that the report can still be written. After a hurry (a second signal or a notice) it is one margin from that moment.
// Istio's modes have no grace period: they need it only after a hurry.
func (r *run) killBy() time.Time {
	by := later(r.graceEnds(), r.terminatedAt.Add(r.least()))
	if r.hurried() {
		soon := r.hurriedAt.Add(r.cfg.margin())
		if by = earlier(by, soon); r.cfg.Mode != ExitOnZero {
			by = soon
		}
	}
	return by.Add(-r.cfg.margin() / 8)
}

// killDeadline is when a Kill that does not return is abandoned: in time for the report before SIGKILL.
func (r *run) killDeadline() time.Time {
	now := time.Now()
	until, least := now.Add(callTimeout), max(r.cfg.margin()/16, overrun)
	if r.cfg.Mode != ExitOnZero {
		return until
	}
	return earlier(until, later(r.graceEnds().Add(-least), now.Add(least)))
}

// callDeadline is when a call that may take at most d is abandoned: no call may use up the time of the last call. After
// the deadline, or in a hurry, a call has an eighth of the shortest time that the last call can have.
func (r *run) callDeadline(d time.Duration) time.Time {
	now := time.Now()
	until, short := now.Add(d), now.Add(r.least()/8)
	switch {
	case r.hurried():
		return earlier(until, short)
	case r.cfg.Mode != ExitOnZero:
		return until
	}
	return earlier(until, later(r.deadline(), short))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// sooner is earlier for times of which zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return later(a, b)
	}
	return earlier(a, b)
}
