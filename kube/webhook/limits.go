package webhook

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sideport"
)

// Limits of everything that clients make the server hold. With them its memory stays below 128 MiB for any input.
const (
	maxConnections = 128      // for reviews; shared among addresses
	maxHeld        = 24 << 20 // bytes of requests, bodies and answers; shared among addresses
	requestSize    = 16 << 10 // bytes that a request holds with its first buffer
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
	held  *sideport.Slots     // bytes
	slots *semaphore.Weighted // to examine reviews: as many as processors
	large *semaphore.Weighted // no more than one of them
}

func newLimits() limits {
	return limits{
		held: sideport.NewSlots(maxHeld), slots: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))),
		large: semaphore.NewWeighted(1),
	}
}

// slot waits until a review of this size may be examined; false if its time has passed before.
func (l *limits) slot(ctx context.Context, size, values int) (leave func(), isMine bool) {
	isLarge := size > smallObject || values > smallValues
	if isLarge && l.large.Acquire(ctx, 1) != nil {
		return nil, false
	}
	if l.slots.Acquire(ctx, 1) != nil {
		if isLarge {
			l.large.Release(1)
		}
		return nil, false
	}
	began := time.Now()
	return func() {
		l.slots.Release(1)
		if isLarge {
			time.AfterFunc(largePause*time.Since(began), func() { l.large.Release(1) })
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
