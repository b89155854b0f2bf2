package webhook

import (
	"context"
	"net/http"
	"runtime"
	"time"
)

// Limits of everything that clients make the server hold. With them its memory stays below 128 MiB for any input.
const (
	maxConnections = 128      // for reviews; shared among addresses
	maxScrapes     = 32       // connections to the plain port
	maxRequests    = 1024     // reviews in flight; shared among addresses
	maxHeld        = 16 << 20 // bytes of bodies and answers; shared among addresses
	maxPatch       = 1 << 20  // bytes
	maxAround      = 64 << 10 // bytes of a review that are not its object
	maxHeaders     = 8 << 10  // bytes of a request's header

	// SoftLimit is the value for debug.SetMemoryLimit, in bytes.
	SoftLimit = 64 << 20
)

// Larger reviews are rare: they are examined one at a time, with pauses, and use at most a fifth of one processor.
const (
	smallObject = 64 << 10
	smallValues = 1_000
	largePause  = 4 // times the duration of the previous one
)

// The time limit of a review: the API server's, which is in the query (timeout=5s), less the time to send the answer.
const (
	defaultTime = 3 * time.Second
	longestTime = 10 * time.Second
)

// limits are the limits of one server.
type limits struct {
	requests, held *shares
	slots          *shares       // to examine reviews: as many as processors, at most half for one client
	large          chan struct{} // no more than one of them
}

func newLimits() limits {
	return limits{
		requests: newShares(maxRequests), held: newShares(maxHeld),
		slots: newShares(max(2, min(8, runtime.GOMAXPROCS(0)))), large: make(chan struct{}, 1),
	}
}

// slot waits until the review may be examined; false if its time has passed before.
func (l *limits) slot(ctx context.Context, r *review) (leave func(), isMine bool) {
	isLarge := len(r.Object.Raw) > smallObject || r.values > smallValues
	if isLarge {
		select {
		case l.large <- struct{}{}:
		case <-ctx.Done():
			return nil, false
		}
	}
	if !l.slots.wait(ctx, r.from) {
		if isLarge {
			<-l.large
		}
		return nil, false
	}
	began := time.Now()
	return func() {
		l.slots.give(r.from, 1)
		if isLarge {
			time.AfterFunc(largePause*time.Since(began), func() { <-l.large })
		}
	}, true
}

// timeFor is the time limit of a request.
func timeFor(r *http.Request) time.Duration {
	d, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || d <= 0 {
		return defaultTime
	}
	return min(d, longestTime) * 4 / 5
}
