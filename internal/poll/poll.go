// Package poll waits for what no event announces, and spreads the endings of connections over a time.
package poll

import (
	"context"
	"time"
)

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

// Spread calls end for each of all, evenly spread over a time from began on; for the rest at once when ctx ends.
func Spread[T any](ctx context.Context, began time.Time, over time.Duration, all []T, end func(T)) {
	for i, one := range all {
		// By the clock, not by pauses: thousands of short pauses take long.
		due := time.Until(began.Add(over * time.Duration(i) / time.Duration(len(all))))
		if due >= time.Millisecond && ctx.Err() == nil {
			select {
			case <-time.After(due):
			case <-ctx.Done():
			}
		}
		end(one)
	}
}
