package drain

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
	maxHeldBy = 10 // conversations in Report.HeldBy
	maxFaults = 20 // faults in Report.Faults
)

// look updates the activity. A failed call is never taken for no activity.
func (r *run) look() {
	if r.cfg.Mode != ExitOnZero {
		return // Istio's modes poll when Istio does
	}
	if _, over := r.interrupted(); over {
		return // the activity no longer matters
	}
	r.triedAt = time.Now()
	began := r.triedAt
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

// open lists the busy conversations. They are only for the report: after one failure Open is not called again.
func (r *run) open() (names []Conversation, err error) {
	if r.namesFailed != nil {
		return nil, r.namesFailed
	}
	if _, over := r.interrupted(); over {
		return nil, errInterrupted
	}
	names, err = callFor(r, r.callDeadline(namesTimeout), func(ctx context.Context) ([]Conversation, error) {
		return r.dp.Open(ctx, maxHeldBy)
	})
	if err != nil && !errors.Is(err, errInterrupted) {
		r.namesFailed = err
		r.faultf("list open conversations: %v", err)
	}
	return names, err
}

// faultf records a failure that does not stop the drain.
func (r *run) faultf(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	r.log.Warn(what)
	r.note(what)
}
