package drain

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// namesTimeout is shorter than callTimeout: names are nice to have.
const namesTimeout = callTimeout / 4

// errBrokenOff is what a call returns that was ended by something more urgent.
// That is no fault of the data plane's.
var errBrokenOff = errors.New("broken off")

// overrun is how long after its deadline a call is awaited: one that honours its
// context returns at once, but on a busy machine that takes time.
const overrun = 100 * time.Millisecond

// errDeaf is what a call returns that does not heed its context.
var errDeaf = fmt.Errorf("has not returned %v after its deadline", overrun)

// errStuck is what a call returns while an earlier one, given up, has not returned.
var errStuck = errors.New("an earlier call of the data plane has not returned")

// call is callFor without a result.
func (r *run) call(until time.Time, f func(context.Context) error) error {
	_, err := callFor(r, until, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// callFor runs one call of the data plane until it returns or until comes. While it
// runs, signals are heard and the data plane's end is seen: a call that hangs
// must not keep /quitquitquit, a second SIGTERM or a crash waiting. A call that does
// not return although its context has ended is given up, and no other begins before it
// has returned: no two of them run at a time.
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
			close(returned) // before the result is seen, and the next call begins
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
	var given <-chan time.Time
	for {
		select {
		case got := <-done:
			if _, over := r.over(); over && got.err != nil {
				got.err = errBrokenOff
			}
			return got.value, got.err
		case <-earlier:
			earlier = nil
			begin()
		case <-ended:
			if earlier != nil {
				return result{}.value, r.givenUp(errStuck)
			}
			ended = nil
			clock := time.NewTimer(overrun)
			defer clock.Stop()
			given = clock.C
		case <-given:
			return result{}.value, r.givenUp(errDeaf)
		case <-died:
			died = nil
			cancel()
		case s := <-r.signals:
			r.hear(s)
			if _, over := r.over(); over || r.reopening && r.terminating {
				cancel()
			} else if r.resuming && r.terminating {
				defer time.AfterFunc(callTimeout, cancel).Stop()
			}
		}
	}
}

// givenUp is the error of a call that was given up for why.
func (r *run) givenUp(why error) error {
	if _, over := r.over(); over {
		return errBrokenOff
	}
	return why
}

// killDataPlane ends the data plane at once. One that does not even do that is left to the
// end of the process, which takes it along.
func (r *run) killDataPlane() {
	done := make(chan struct{})
	go func() { defer close(done); r.dp.Kill() }()
	clock := time.NewTimer(time.Until(r.killPatience()))
	defer clock.Stop()
	select {
	case <-done:
	case <-clock.C:
		r.faultf(faultKill)
	}
}

// do is call for what must not stop the drain when it fails, and need not be
// done any more when something more urgent has come.
func (r *run) do(what string, f func(context.Context) error) {
	if _, over := r.told(); over {
		return
	}
	if err := r.call(r.patience(callTimeout), f); err != nil && err != errBrokenOff {
		r.faultf("%s: %v", what, err)
	}
}

// resumeTimeout bounds Resume: an Envoy has to be replaced for it, which with thousands
// of clusters takes seconds.
const resumeTimeout = 12 * time.Second

// serveAgain takes the drain of the data plane back. When SIGTERM comes meanwhile, that
// may take no longer than any other call.
func (r *run) serveAgain(what string) {
	if _, over := r.told(); over {
		return
	}
	r.resuming = !r.terminating
	defer func() { r.resuming = false }()
	if err := r.call(time.Now().Add(resumeTimeout), r.dp.Resume); err != nil && err != errBrokenOff {
		r.faultf("%s: %v", what, err)
	}
}

// ask looks at the activity.
func (r *run) ask() (Activity, error) {
	return callFor(r, r.patience(callTimeout), r.dp.Activity)
}

// open asks for the names of what is busy. They are for the report only: a data
// plane that has failed to say them once is not asked again.
func (r *run) open() (names []Conversation, err error) {
	if r.namesFailed != nil {
		return nil, r.namesFailed
	}
	if _, over := r.told(); over {
		return nil, errBrokenOff
	}
	names, err = callFor(r, r.patience(namesTimeout), func(ctx context.Context) ([]Conversation, error) {
		return r.dp.Open(ctx, heldByMost)
	})
	if err != nil && err != errBrokenOff {
		r.namesFailed = err
		r.faultf("list what is open: %v", err)
	}
	return names, err
}

// faultf notes what went wrong without stopping the drain.
func (r *run) faultf(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	r.log.Warn(what)
	r.note(what)
}
