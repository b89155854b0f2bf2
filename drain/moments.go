package drain

import "time"

// drainEnds is when the draining phase is over as things stand: the minimum, or
// the quiet time after the last arrival, but not beyond the cap.
func (r *run) drainEnds() time.Time {
	ends, most := r.quietFrom(), r.start.Add(r.cfg.drainCap())
	if !r.lookedAt.Before(ends) && r.mayHaveMissed(ends) {
		return most // unless an answer that knows more comes before
	}
	return earlier(ends, most)
}

// quietFrom is when the quiet time is over if no client comes before.
func (r *run) quietFrom() time.Time {
	return later(r.lastArrival.Add(r.cfg.QuietTime), r.start.Add(r.cfg.MinimumDrain))
}

// mayHaveMissed is true when the data plane cannot say that no client has come
// before at.
func (r *run) mayHaveMissed(at time.Time) bool {
	return r.cfg.QuietTime > 0 && !r.activity.ArrivalsAsOf.IsZero() && r.activity.ArrivalsAsOf.Before(at)
}

// deadline is the moment of the last call.
func (r *run) deadline() time.Time { return r.start.Add(r.cfg.lastCallAfter()) }

// graceEnds is the moment of the kubelet's SIGKILL.
func (r *run) graceEnds() time.Time { return r.start.Add(r.cfg.GracePeriod) }

// takenBackAt is when a hook that no SIGTERM has followed is taken back. A native
// sidecar gets its SIGTERM when the app is gone, which may take the whole grace
// period and, if the hook has used that up, the kubelet's two seconds more; and
// the kubelet of a busy node is late.
func (r *run) takenBackAt() time.Time { return r.graceEnds().Add(takenBackSlack) }

const takenBackSlack = 5 * time.Second

// least is what the kubelet leaves a container after its SIGTERM, even when a
// preStop hook has used up the whole grace period: two seconds
// (minimumGracePeriodInSeconds in its kuberuntime). No more than the margin is
// taken of it.
func (r *run) least() time.Duration { return min(r.cfg.margin(), 2*time.Second) }

// killBy is when an orderly end is given up: an eighth of the margin before the
// kubelet's SIGKILL, so that the report still gets out. Who was hurried has no
// whole grace period left: one margin from then. Istio's modes know no grace
// period, so they come here only when hurried.
func (r *run) killBy() time.Time {
	by := later(r.graceEnds(), r.terminated.Add(r.least()))
	if r.hurry {
		soon := r.hurriedAt.Add(r.cfg.margin())
		if by = earlier(by, soon); r.cfg.Mode != ExitOnZero {
			by = soon
		}
	}
	return by.Add(-r.cfg.margin() / 8)
}

// killPatience is when a Kill that does not return is given up: in time for the report
// before the kubelet's SIGKILL.
func (r *run) killPatience() time.Time {
	now := time.Now()
	until, least := now.Add(callTimeout), max(r.cfg.margin()/16, overrun)
	if r.cfg.Mode != ExitOnZero {
		return until
	}
	return earlier(until, later(r.graceEnds().Add(-least), now.Add(least)))
}

// patience is when a call that may take at most d is given up: none may eat up
// the time of the last call. What is asked after the deadline, or in a hurry,
// gets an eighth of what the last call has at least.
func (r *run) patience(d time.Duration) time.Time {
	now := time.Now()
	until, short := now.Add(d), now.Add(r.least()/8)
	switch {
	case r.hurry:
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

// sooner is earlier, where the zero time never comes.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return later(a, b)
	}
	return earlier(a, b)
}
