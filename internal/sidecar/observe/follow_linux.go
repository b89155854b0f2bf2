package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

// App is an app whose termination is followed, and a Watch of it that has started.
type App struct {
	Watch  *Watch
	Exited <-chan struct{} // nil: a pod's, which ends when every socket has gone, after its SIGTERM
	Exit   func() Exit     // how it ended, after Exited

	Signals   <-chan os.Signal      // SIGTERM and SIGINT of this process
	Pass      func(os.Signal) error // passes them on to the app; nil: they are this process's own
	Terminate func() error          // sends the app SIGTERM, which begins the termination at once; nil: others do

	Limit time.Duration           // for the beginning; 0: none
	Early time.Duration           // after it, Print gets what is lost so far if requests are in flight; 0: never
	Print func(Termination) error // a preliminary result
}

// Errors of Follow without a termination.
var (
	ErrInterrupted   = errors.New("interrupted before a termination")
	ErrNoTermination = errors.New("no termination")
)

const (
	followInterval = 50 * time.Millisecond // between looks for the end
	orphanTime     = 10 * time.Second      // for listeners of descendants after the exit of the process
)

// Follow returns what the termination has lost once the app has ended, or at a signal of this process after the
// beginning. The beginning is the SIGTERM that Terminate or Pass sends or the pod receives, otherwise the moment when
// the app closes a listener or exits.
func (a App) Follow(ctx context.Context) (Termination, error) {
	look := time.NewTicker(followInterval)
	defer look.Stop()
	limit, early := after(a.Limit), (<-chan time.Time)(nil)
	closing, exited := a.Watch.Closing(), a.Exited
	if exited == nil {
		closing = nil // a pod may close one of its listeners and serve on
	}
	begun, ended := false, time.Time{}
	begin := func(by string) {
		if !begun {
			_ = a.Watch.Begin(time.Now(), by) // it has started
			begun, limit, early = true, nil, after(a.Early)
		}
	}
	if a.Terminate != nil {
		begin("SIGTERM")
		if err := a.Terminate(); err != nil {
			return Termination{}, err
		}
	}
	for {
		select {
		case s := <-a.Signals:
			switch {
			case a.Pass != nil:
				begin(signals.Name(s.(syscall.Signal)))
				if err := a.Pass(s); err != nil {
					return Termination{}, fmt.Errorf("pass %v on to the app: %w", s, err)
				}
			case a.Exited == nil && s == syscall.SIGTERM:
				begin("SIGTERM")
			case begun:
				return a.Watch.End(time.Now(), Exit{}), nil
			default:
				return Termination{}, ErrInterrupted
			}
		case <-closing:
			begin("a closed listener")
			closing = nil
		case <-exited:
			begin("the exit of the process")
			exited, ended = nil, time.Now()
		case <-early:
			if t := a.Watch.Peek(); t.Maybe.Unfinished > 0 {
				if err := a.Print(t); err != nil {
					return Termination{}, err
				}
			}
		case <-limit:
			return Termination{}, fmt.Errorf("%w in %v", ErrNoTermination, a.Limit)
		case <-ctx.Done():
			return Termination{}, ctx.Err()
		case <-look.C:
			switch {
			case a.Exited == nil && begun && a.Watch.Gone():
				return a.Watch.End(time.Now(), Exit{}), nil
			case !ended.IsZero() && (len(a.Watch.Listening()) == 0 || time.Since(ended) > orphanTime):
				return a.Watch.End(ended, a.Exit()), nil
			}
		}
	}
}

// after is a timer's channel, or nil when d is not positive.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}
