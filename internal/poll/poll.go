// Package poll waits: for a time, or for changes that no event announces.
package poll

import (
	"context"
	"time"
)

// Pause waits, and returns the cause of ctx's end if that comes first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Until calls is, now and at each interval, until it returns true. It returns ctx's error if ctx ends before.
func Until(ctx context.Context, every time.Duration, is func() bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
