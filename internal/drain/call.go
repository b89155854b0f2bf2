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

// call runs one call of the data plane until it returns or until comes. While it
// runs, signals are heard and the data plane's end is seen: a call that hangs
// must not keep /quitquitquit, a second SIGTERM or a crash waiting. The call is
// always waited for: no two of them run at a time.
func (r *run) call(until time.Time, f func(context.Context) error) error {
	ctx, cancel := context.WithDeadline(r.ctx, until)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()

	died := r.dp.Exited()
	for {
		select {
		case err := <-done:
			if _, over := r.over(); over && err != nil {
				return errBrokenOff
			}
			return err
		case <-died:
			died = nil
			cancel()
		case s := <-r.signals:
			r.hear(s)
			if _, over := r.over(); over {
				cancel()
			}
		}
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

// ask looks at the activity.
func (r *run) ask() (a Activity, err error) {
	err = r.call(r.patience(callTimeout), func(ctx context.Context) (err error) {
		a, err = r.dp.Activity(ctx)
		return err
	})
	return a, err
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
	err = r.call(r.patience(namesTimeout), func(ctx context.Context) (err error) {
		names, err = r.dp.Open(ctx, heldByMost)
		return err
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
