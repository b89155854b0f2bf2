package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultLoad     = 20.0 // requests a second, at most
	defaultInFlight = 2.0

	// maxInFlight is how many requests of the load may be in flight; later ones are not sent.
	maxInFlight = 4000
)

// loadFor is the default rate, for requests that take mean on average.
func loadFor(mean time.Duration) float64 {
	return min(defaultLoad, defaultInFlight/max(mean.Seconds(), 0.001))
}

// sendLoad sends requests at the trial's rate until loading ends, by the clients in turn and each kind by its weight. The
// load is open: each request is sent at its time, whether earlier ones were answered or not.
func (t *trial) sendLoad(loading, ctx context.Context, flying *sync.WaitGroup) {
	next := t.turns()
	if next == nil {
		return
	}
	var inFlight atomic.Int64
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; ; i++ {
		timer.Reset(time.Until(began.Add(time.Duration(float64(i) / t.load * float64(time.Second)))))
		select {
		case <-timer.C:
		case <-loading.Done():
			return
		}
		if inFlight.Load() >= maxInFlight {
			continue
		}
		request := next()
		inFlight.Add(1)
		flying.Go(func() {
			t.send(ctx, request, i%callers, false)
			inFlight.Add(-1)
		})
	}
}

// turns returns the next request's index by smooth weighted round robin: evenly mixed, and the same in each run. Requests
// without an end are no part of the load; nil if there are no others.
func (t *trial) turns() func() int {
	type turn struct{ index, weight, credit int }
	var all []*turn
	sum := 0
	for i, r := range t.options.Requests {
		if !r.IsEndless() {
			all = append(all, &turn{index: i, weight: r.Weight})
			sum += r.Weight
		}
	}
	if len(all) == 0 {
		return nil
	}
	return func() int {
		best := all[0]
		for _, one := range all {
			one.credit += one.weight
			if one.credit > best.credit {
				best = one
			}
		}
		best.credit -= sum
		return best.index
	}
}
