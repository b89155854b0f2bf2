package strategy

import (
	"context"
	"fmt"
	"time"

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
	limit := time.NewTimer(inFlightLimit)
	defer limit.Stop()
	tick := time.NewTicker(inFlightPeriod)
	defer tick.Stop()
	for {
		now, err := node.Established()
		if err != nil {
			return err
		}
		missing := 0
		for port, n := range before {
			if now[port] <= n {
				missing++
			}
		}
		if missing == 0 {
			return node.Sleep(settle).Run(ctx)
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return fmt.Errorf("%d of %d requests did not reach their apps within %v", missing, len(before), inFlightLimit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
