package drain

import (
	"fmt"
	"time"
)

// reason is why a wait ended.
type reason int

const (
	reached    reason = iota // the moment that was waited for has come
	becameFree               // the condition has come true
	hurried                  // last call now: second SIGTERM, or a notice
	exited                   // the data plane has ended by itself
	told                     // quitquitquit, or ctx ended
)

// heldByMost is how many conversations a report lists as what held the exit.
const heldByMost = 10

// never is a moment that does not come.
func never() time.Time { return time.Time{} }

// await waits until the moment that until gives, or until free says true.
// Everything that can happen to a termination is heard here, and only here:
// signals, the end of the data plane, changes of activity. until is asked anew
// after each of them, because an arrival moves the end of the drain.
//
// What comes at the same instant is taken in the order of its weight: the data
// plane's own end, a signal, the condition, the clock.
func (r *run) await(until func() time.Time, free func() bool) reason {
	clock := time.NewTimer(0)
	defer clock.Stop()
	poll := time.NewTicker(r.cfg.PollInterval)
	defer poll.Stop()

	for r.look(); ; {
		if why, over := r.told(); over {
			return why
		}
		if free != nil && free() {
			return becameFree
		}
		var ring <-chan time.Time
		if at := until(); !at.IsZero() {
			left := time.Until(at)
			if left <= 0 {
				return reached
			}
			clock.Reset(left)
			ring = clock.C
		}
		// A data plane that pushes is looked at when it says so; one that
		// cannot, or whose last answer was none, is asked again and again.
		var changes <-chan struct{}
		var again <-chan time.Time
		if r.cfg.Mode == ExitOnZero {
			changes = r.dp.Changes()
			if changes == nil || !r.activity.Known {
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

// look asks the data plane for its activity. A failed look is never a zero.
func (r *run) look() {
	if r.cfg.Mode != ExitOnZero {
		return // Istio's modes look when Istio does
	}
	a, err := r.ask()
	if err != nil || !a.Known {
		r.activity.Known = false
		if !r.saidUnknown {
			r.saidUnknown = true
			r.log.Warn(lineSaidNothing, "error", err)
			r.report.Faults = append(r.report.Faults, fmt.Sprintf("activity unknown: %v", err))
		}
		return
	}
	r.saidUnknown = false
	r.seen(a)
}

// seen takes a successful look in.
func (r *run) seen(a Activity) {
	switch {
	case !r.looked:
		r.looked, r.firstSeen = true, a.Arrivals
	case a.Arrivals != r.activity.Arrivals:
		r.lastArrival = time.Now()
	}
	r.report.Late = a.Arrivals - r.firstSeen
	changed := a != r.activity
	r.activity = a
	if !changed {
		return
	}
	if r.phase == Waiting && a.Busy > 0 && r.cfg.Mode == ExitOnZero {
		r.sayStillActive(a.Busy)
		r.noteHolders()
	}
	if r.watch.Activity != nil {
		r.watch.Activity(a)
	}
}

// sayStillActive writes Istio's line, on changes and once a second at most.
func (r *run) sayStillActive(n int) {
	if now := time.Now(); now.Sub(r.lastLine) >= time.Second {
		r.lastLine = now
		r.log.Info(fmt.Sprintf(lineStillActive, n), "active", n)
	}
}

// free is true when nothing is busy and no idle connection is so fresh that its
// client may be about to use it.
func (r *run) free() bool {
	return r.noneBusy() && (r.activity.Connections == 0 || time.Since(r.lastArrival) >= r.cfg.IdleGrace)
}

// noteHolders remembers, ten times a second at most, what keeps us waiting.
func (r *run) noteHolders() {
	if now := time.Now(); r.activity.Busy > 0 && now.Sub(r.lastHolders) >= 100*time.Millisecond {
		r.lastHolders = now
		if held, err := r.open(); err == nil && len(held) > 0 {
			r.report.HeldBy = held
		}
	}
}

// noneBusy is true when nothing is busy, as far as is known.
func (r *run) noneBusy() bool { return r.activity.Known && r.activity.Busy == 0 }

func (r *run) isTerminating() bool { return r.terminating }

// drainEnds is when the draining phase is over as things stand: the minimum, or
// the quiet time after the last arrival, but not beyond the cap.
func (r *run) drainEnds() time.Time {
	ends := r.lastArrival.Add(r.cfg.QuietTime)
	if least := r.start.Add(r.cfg.MinimumDrain); ends.Before(least) {
		ends = least
	}
	if most := r.start.Add(r.cfg.drainCap()); ends.After(most) {
		ends = most
	}
	return ends
}

// deadline is the moment of the last call.
func (r *run) deadline() time.Time { return r.start.Add(r.cfg.lastCallAfter()) }

// waitingEnds is the deadline, or the moment at which the last idle connection
// will have been idle for long enough, so that free is asked again then.
func (r *run) waitingEnds() time.Time {
	if at := r.lastArrival.Add(r.cfg.IdleGrace); r.noneBusy() && at.Before(r.deadline()) {
		return at
	}
	return r.deadline()
}

// graceEnds is the moment of the kubelet's SIGKILL.
func (r *run) graceEnds() time.Time { return r.start.Add(r.cfg.GracePeriod) }

// killBy is when an orderly end is given up: an eighth of the margin before the
// kubelet's SIGKILL, so that the report still gets out. Who was hurried has no
// whole grace period left: one margin from then.
func (r *run) killBy() time.Time {
	by := r.graceEnds()
	if r.hurry {
		by = earlier(by, r.hurriedAt.Add(r.cfg.margin()))
	}
	return by.Add(-r.cfg.margin() / 8)
}
