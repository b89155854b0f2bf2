// Package spread spreads the ends of conversations whose clients reconnect, so that they do not all connect to the
// pod's successors at once. It is one rule for every data plane: at most PerSecond ends a second where the time allows.
package spread

import (
	"context"
	"time"
)

const (
	// PerSecond is how many clients are sent to the successors in a second: 50 within 100 ms fit in the accept queue of
	// any server (Node has 511, nginx 511, uvicorn 2048), and their TLS handshakes take at most half a processor.
	PerSecond = 500

	// maxRetry bounds Retries: a client without its stream for longer may be given up by its user.
	maxRetry = 30 * time.Second
)

func wanted(n int) time.Duration { return time.Duration(n) * time.Second / PerSecond }

// Over returns the time over which n ends are spread: as long as PerSecond requires, but at most three quarters of
// window, since the rest is for the ends themselves, and at least least.
func Over(n int, least, window time.Duration) time.Duration {
	return max(least, min(wanted(n), window*3/4))
}

// Retries returns over how long the clients of n streams that end over a time should spread their return,
// if that time was too short for PerSecond; 0 if it was not.
func Retries(n int, over time.Duration) time.Duration { return min(max(0, wanted(n)-over), maxRetry) }

// At returns when the end with index i of n is due, at even intervals: random ones might coincide.
func At(i, n int, over time.Duration) time.Duration {
	return over * time.Duration(i) / time.Duration(n)
}

// Each calls end for each of all, evenly spread over a time from began on; for the rest at once when ctx ends.
func Each[T any](ctx context.Context, began time.Time, over time.Duration, all []T, end func(T)) {
	for i, one := range all {
		// By the clock, not by pauses: thousands of short pauses take long.
		due := time.Until(began.Add(At(i, len(all), over)))
		if due >= time.Millisecond && ctx.Err() == nil {
			select {
			case <-time.After(due):
			case <-ctx.Done():
			}
		}
		end(one)
	}
}
