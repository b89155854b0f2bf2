package webhook

import (
	"context"
	"net/http"
	"runtime"
	"time"
)

// Bounds of everything that clients make the server hold. Together with what the program is without them they stay
// below 128 MiB, whatever is sent.
const (
	maxConnections = 128      // for reviews; shared among addresses
	maxScrapes     = 32       // connections to the plain port
	maxRequests    = 1024     // reviews under way; shared among addresses
	maxHeld        = 16 << 20 // bytes of bodies and answers; shared among addresses
	maxPatch       = 1 << 20  // bytes
	maxAround      = 64 << 10 // bytes of a review that are not its object
	maxHeaders     = 8 << 10  // bytes of a request's header

	// SoftLimit is for debug.SetMemoryLimit: what the garbage collector keeps the process to, bytes.
	SoftLimit = 64 << 20
)

// Larger reviews are examined one after the other, with pauses: they are rare, and have a fifth of one processor at most.
const (
	smallObject = 64 << 10
	smallValues = 1_000
	largePause  = 4 // times as long as the one before took
)

// How long a review may take in all: what the API server says, less what the answer's way takes. It says
// so in the query (timeout=5s).
const (
	defaultTime = 3 * time.Second
	longestTime = 10 * time.Second
)

// limits are the bounds in force.
type limits struct {
	requests, held *shares
	slots          *shares       // to be examined: as many as there are processors, of which one client has half
	large          chan struct{} // one of them at most
}

func newLimits() limits {
	return limits{
		requests: newShares(maxRequests), held: newShares(maxHeld),
		slots: newShares(max(2, min(8, runtime.GOMAXPROCS(0)))), large: make(chan struct{}, 1),
	}
}

// slot waits until the review may be examined; false when its time is over before.
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

// timeFor is how long a request's answer may take.
func timeFor(r *http.Request) time.Duration {
	d, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || d <= 0 {
		return defaultTime
	}
	return min(d, longestTime) * 4 / 5
}
