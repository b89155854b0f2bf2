package drain

import (
	"context"
	"time"
)

// namesTimeout is shorter than callTimeout: names are nice to have.
const namesTimeout = callTimeout / 4

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
			return err
		case <-died:
			died = nil
			cancel()
		case s := <-r.signals:
			r.hear(s)
			switch {
			case r.quit:
				cancel()
			case r.hurry && !r.ending:
				cancel() // the last call is more urgent than whatever this is
			case r.hurry:
				// The end itself is under way: it gets a margin, no more.
				stop := time.AfterFunc(time.Until(r.killBy()), cancel)
				defer stop.Stop()
			}
		}
	}
}

// do is call for what must not stop the drain when it fails.
func (r *run) do(what string, f func(context.Context) error) {
	if err := r.call(r.patience(callTimeout), f); err != nil {
		r.fault(what + ": " + err.Error())
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
	err = r.call(r.patience(namesTimeout), func(ctx context.Context) (err error) {
		names, err = r.dp.Open(ctx, heldByMost)
		return err
	})
	if err != nil {
		r.namesFailed = err
		r.fault("list what is open: " + err.Error())
	}
	return names, err
}

// patience is when a call that may take at most d is given up: none may eat up
// the time of the last call. What is asked after the deadline gets an eighth of
// the margin.
func (r *run) patience(d time.Duration) time.Time {
	now := time.Now()
	until := now.Add(d)
	if r.cfg.Mode != ExitOnZero {
		return until
	}
	return earlier(until, later(r.deadline(), now.Add(r.cfg.margin()/8)))
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
