package drain

import "time"

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
	by := later(r.graceEnds(), r.requested.Terminated.Add(r.least()))
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
