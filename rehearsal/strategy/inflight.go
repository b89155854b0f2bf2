package strategy

import (
	"context"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

const (
	inFlightLimit  = 10 * time.Second
	inFlightPeriod = 5 * time.Millisecond
	settle         = 50 * time.Millisecond // from the app's accept to its handler
)

// AwaitInFlight returns when each app has one more connection than before: the request has arrived. It reads the
// kernel's socket table, so that it works with any app.
func AwaitInFlight(ctx context.Context, before map[int]int) error {
	within, stop := context.WithTimeout(ctx, inFlightLimit)
	defer stop()
	missing := len(before)
	var failed error
	err := poll.Until(within, inFlightPeriod, func() bool {
		var now map[int]int
		now, failed = node.Established()
		missing = 0
		for port, n := range before {
			if now[port] <= n {
				missing++
			}
		}
		return missing == 0 || failed != nil
	})
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%d of %d requests did not reach their apps within %v", missing, len(before), inFlightLimit)
	}
	return node.Sleep(settle).Run(ctx)
}
