package drain

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// namesTimeout is shorter than callTimeout, since names only improve the report.
const namesTimeout = callTimeout / 4

// errInterrupted is the error of a call that a signal or the end of the data plane has interrupted. It is not a fault
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

// callFor runs one call of the data plane until it returns, or until the deadline. Signals and the end of the data
// plane are received meanwhile: a call that hangs must not delay /quitquitquit, a second SIGTERM or the report of a
// crash. A call that does not return when its context ends is abandoned, and no other begins before it returns, so that
// no two run at the same time.
func callFor[T any](r *run, until time.Time, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithDeadline(r.ctx, until)
	defer cancel()
	done := make(chan result, 1)
	begin := func() {
		returned := make(chan struct{})
		r.returned = returned
		go func() {
			var got result
			got.value, got.err = f(ctx)
			close(returned) // before the result is received and the next call begins
			done <- got
		}()
	}
	earlier := r.returned
	select {
	case <-earlier:
		earlier = nil
	default:
	}
	if earlier == nil {
		begin()
	}

	died, ended := r.dp.Exited(), ctx.Done()
	var overdue, sooner <-chan time.Time
	isBrokenOff := false
	for {
		select {
		case got := <-done:
			if _, over := r.interruption(); (over || isBrokenOff) && got.err != nil {
				got.err = errInterrupted
			}
			return got.value, got.err
		case <-earlier:
			earlier = nil
			begin()
		case <-ended:
			if earlier != nil {
				return result{}.value, r.abandon(errPreviousCall)
			}
			ended = nil
			clock := time.NewTimer(overrun)
			defer clock.Stop()
			overdue = clock.C
		case <-overdue:
			return result{}.value, r.abandon(errIgnoresContext)
		case <-died:
			died = nil
			cancel()
		case <-sooner: // the last call is due
			isBrokenOff = true
			cancel()
		case s := <-r.signals:
			r.receive(s)
			if s == Sooner && !r.ending && r.deadline().Before(until) {
				clock := time.NewTimer(time.Until(r.deadline()))
				defer clock.Stop()
				sooner = clock.C
			}
			if _, over := r.interruption(); over || r.resuming == reopening && r.terminating() {
				cancel()
			} else if r.resuming == cancelling && r.terminating() {
				defer time.AfterFunc(callTimeout, cancel).Stop()
			}
		}
	}
}

// abandon returns the error of a call that is abandoned because of why.
func (r *run) abandon(why error) error {
	if _, over := r.interruption(); over {
		return errInterrupted
	}
	return why
}

// killDataPlane ends the data plane at once. A data plane whose Kill hangs is left to the exit of the process.
func (r *run) killDataPlane() {
	done := make(chan struct{})
	go func() { defer close(done); r.dp.Kill() }()
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

// resumeTimeout bounds Resume: an Envoy has to be replaced, which takes seconds with thousands of clusters.
const resumeTimeout = 12 * time.Second

// open lists the busy conversations. They are only for the report: after one failure Open is not called again.
func (r *run) open() (names []Conversation, err error) {
	if r.namesFailed != nil {
		return nil, r.namesFailed
	}
	if _, over := r.interrupted(); over {
		return nil, errInterrupted
	}
	names, err = callFor(r, r.callDeadline(namesTimeout), func(ctx context.Context) ([]Conversation, error) {
		return r.dp.Open(ctx, heldByMost)
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
