package drain

import (
	"fmt"
	"time"
)

const (
	heldByMost   = 10 // conversations that a report lists as what held the exit
	faultsAtMost = 20 // faults that a report lists
)

// look asks the data plane for its activity. A failed look is never a zero.
func (r *run) look() {
	if r.cfg.Mode != ExitOnZero {
		return // Istio's modes look when Istio does
	}
	if _, over := r.told(); over {
		return // nothing depends on the answer any more
	}
	began := time.Now()
	a, err := r.ask()
	switch {
	case err == errBrokenOff:
	case err != nil:
		r.lookFailed(err.Error())
	case !a.Known:
		r.lookFailed("the data plane could not tell")
	default:
		r.unknown, r.lookedAt = false, began
		r.seen(a)
	}
}

// lookFailed writes once a second at most that the activity has become unknown.
func (r *run) lookFailed(why string) {
	r.activity.Known = false
	if r.unknown {
		return
	}
	r.note("activity unknown: " + why)
	if now := time.Now(); now.Sub(r.unknownSaid) >= time.Second {
		r.unknown, r.unknownSaid = true, now
		r.log.Warn(lineSaidNothing, "error", why)
	}
}

// seen takes a successful look in.
func (r *run) seen(a Activity) {
	switch {
	case !r.looked:
		r.looked, r.firstSeen, r.firstRaced = true, a.Arrivals, a.Raced
	case a.Arrivals != r.activity.Arrivals:
		r.lastArrival = time.Now()
	}
	r.report.Late, r.report.Raced = a.Arrivals-r.firstSeen, a.Raced-r.firstRaced
	changed := a != r.activity
	r.activity = a
	if !changed {
		return
	}
	if r.phase == Waiting {
		r.noteHolders()
	}
	if r.watch.Activity != nil {
		r.watch.Activity(a)
	}
}

// sayStillActive writes Istio's line when the number is another than it last
// said, once a second at most. It returns when it has more to say.
func (r *run) sayStillActive(now time.Time) time.Time {
	if r.phase != Waiting || r.cfg.Mode != ExitOnZero || !r.activity.Known {
		return never()
	}
	n := r.activity.Busy
	switch next := r.lastLine.Add(time.Second); {
	case n == 0:
		r.activeSaid = 0
	case n == r.activeSaid:
	case now.Before(next):
		return next
	default:
		r.activeSaid, r.lastLine = n, now
		r.log.Info(fmt.Sprintf(lineStillActive, n), "active", n)
	}
	return never()
}

// noteHolders remembers, ten times a second at most, what keeps us waiting.
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
