package drain

import (
	"context"
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

// await waits until the time that until returns, or until met returns true. After each event until and met are called
// again, because a new connection moves the end of the drain.
//
// Events that occur at the same instant are handled in this order: the end of the data plane, requests, the condition,
// the clock.
func (r *run) await(until func() time.Time, met condition) reason {
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

		// A data plane that pushes is looked at after each change. One that cannot, or whose last activity is unknown, is
		// polled.
		var changes <-chan struct{}
		if r.Config.Mode == ExitOnZero {
			changes = r.Plane.Changes()
			if changes == nil || r.drainFailed || !r.activity.Known {
				wake = sooner(wake, r.triedAt.Add(r.Config.PollInterval))
			}
		}
		if r.next(wake, changes) {
			r.look() // also at a moment: a client may have connected
		}
	}
}

// next waits for one event of the termination: a moment or other, for which it returns true, or a request, the end of
// the data plane or of ctx. All waits are here.
func (r *run) next(at time.Time, other <-chan struct{}) bool {
	var clock <-chan time.Time
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		clock = timer.C
	}
	select {
	case <-clock:
		return true
	case <-other:
		return true
	case <-r.changed:
	case <-r.Plane.Exited():
	case <-r.ctx.Done():
	}
	return false
}

// interrupted takes what has been requested, so that no request loses a race against the clock, and returns what
// follows from it.
func (r *run) interrupted() (reason, bool) {
	r.takeRequests()
	return r.interruption()
}

// takeRequests takes what has been requested since the last time.
func (r *run) takeRequests() {
	was := r.requested
	r.requested, r.changed = r.Requests.Look()
	now := &r.requested
	r.hurriedAt = now.Noticed
	if r.Config.Mode == ExitOnZero { // Istio's agent ignores a second signal
		r.hurriedAt = sooner(now.Noticed, now.Again)
	}
	if was.Exit == "" && now.Exit == Quit {
		r.IstioLog.Info(lineHandlingQuit)
	}
	if !was.Again.Equal(now.Again) && r.Config.Mode == ExitOnZero {
		r.Log.Warn(lineSecondSignal)
	}
	if was.Terminated.IsZero() && r.terminating() && r.Config.Mode != ExitOnZero {
		// pilot-agent's status server ends at SIGTERM. Ours does not; the line is for log queries.
		r.IstioLog.Info(lineStatusServer)
	}
	if was.deadlines != now.deadlines {
		r.shorten()
	}
}

// interruption returns the reason to end every wait and every call. During the last call a hurry changes nothing.
func (r *run) interruption() (reason, bool) {
	switch {
	case hasEnded(r.Plane.Exited()):
		return exited, true
	case r.requested.Exit != "" || r.ctx.Err() != nil:
		return stopNow, true
	case r.hurried() && !r.ending:
		return lastCallNow, true
	}
	return 0, false
}

func hasEnded(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// errInterrupted is the error of a call that a request or the end of the data plane has interrupted. It is not a fault
// of the data plane.
var errInterrupted = errors.New("interrupted")

// overrun is how long to wait for a call after its deadline. A call that respects its context returns at once, but on a
// busy machine that takes time.
const overrun = 100 * time.Millisecond

// errIgnoresContext is the error of a call that does not respect its context.
var errIgnoresContext = fmt.Errorf("no return %v after the deadline", overrun)

// errPreviousCall is the error of a call while an earlier, abandoned one has not returned.
var errPreviousCall = errors.New("an earlier call of the data plane has not returned")

// call is callFor without a result.
func (r *run) call(until time.Time, f func(context.Context) error) error {
	_, err := callFor(r, until, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// callFor runs one call of the data plane until it returns, or until the deadline. A call that hangs must not delay
// /quitquitquit, a second SIGTERM or the report of a crash: these break it off. A call that does not return when its
// context ends is abandoned, and no other begins before it returns, so that no two run at the same time.
func callFor[T any](r *run, until time.Time, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithDeadline(r.ctx, until)
	defer cancel()
	got, previous, returned := new(result), r.returned, make(chan struct{})
	go func(got *result) { // an abandoned call still writes its result
		defer close(returned)
		if previous != nil && !hasEnded(previous) {
			select {
			case <-previous:
			case <-ctx.Done():
				got.err = errPreviousCall
				return
			}
		}
		got.value, got.err = f(ctx)
	}(got)
	r.returned = returned

	over, sigkill, wasHurried := false, r.graceEnds(), r.hurried()
	for !hasEnded(returned) && ctx.Err() == nil {
		why, now := r.interrupted()
		over = now && !(why == lastCallNow && wasHurried) // until is that of a call in a hurry
		soonest := r.brokenOffAt(until, sigkill)
		if over = over || soonest.Before(until) && !time.Now().Before(soonest); over {
			cancel()
			break
		}
		r.next(soonest, returned)
	}
	late := time.NewTimer(overrun)
	defer late.Stop()
	select {
	case <-returned:
		if errors.Is(got.err, errPreviousCall) {
			r.returned = previous
		}
	case <-late.C:
		got = &result{err: errIgnoresContext}
	}
	if _, now := r.interruption(); (over || now) && got.err != nil {
		got.err = errInterrupted
	}
	return got.value, got.err
}

// brokenOffAt is when a call is broken off: at its deadline; in time for what follows, if SIGKILL comes sooner than it
// did when the call began; and if SIGTERM comes while the data plane resumes.
func (r *run) brokenOffAt(until, sigkill time.Time) time.Time {
	switch {
	case r.resuming == reopening && r.terminating():
		return r.start
	case r.resuming == cancelling && r.terminating():
		return earlier(until, r.requested.Terminated.Add(callTimeout))
	case !r.graceEnds().Before(sigkill):
		return until
	case r.ending:
		return earlier(until, r.killBy())
	}
	return earlier(until, r.deadline())
}

// killDataPlane ends the data plane at once. A data plane whose Kill hangs is left to the exit of the process.
func (r *run) killDataPlane() {
	done := make(chan struct{})
	go func() { defer close(done); r.Plane.Kill() }()
	clock := time.NewTimer(time.Until(r.killDeadline()))
	defer clock.Stop()
	select {
	case <-done:
	case <-clock.C:
		r.faultf(faultKill)
	}
}

// do is call for a step whose failure must not stop the drain, and which is skipped after an interruption.
func (r *run) do(what string, f func(context.Context) error) {
	if _, over := r.interrupted(); over {
		return
	}
	if err := r.call(r.callDeadline(callTimeout), f); err != nil && !errors.Is(err, errInterrupted) {
		r.faultf("%s: %v", what, err)
	}
}

// look updates the activity. A failed call is never taken for no activity.
func (r *run) look() {
	if r.Config.Mode != ExitOnZero {
		return // Istio's modes poll when Istio does
	}
	if _, over := r.interrupted(); over {
		return // the activity no longer matters
	}
	r.triedAt = time.Now()
	began := r.triedAt
	a, err := callFor(r, r.callDeadline(callTimeout), r.Plane.Activity)
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
		r.Log.Warn(lineUnknown, "error", why)
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
		all, old := a.OpaqueEnds, r.beforeFinish
		f.OpaqueEnds = OpaqueEnds{all.Ended - old.Ended, all.Answered - old.Answered, all.Dropped - old.Dropped}
	}
	changed := a != r.activity
	r.activity = a
	if !changed {
		return
	}
	if r.phase == Waiting || r.phase == Finishing {
		r.noteHolders()
	}
	if r.Watch.Activity != nil {
		r.Watch.Activity(a)
	}
}
