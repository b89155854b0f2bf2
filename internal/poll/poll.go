// Package poll waits for changes that no event announces.
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
