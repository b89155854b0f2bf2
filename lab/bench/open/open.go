// Package open makes requests of HTTP/1.1 at a rate that does not wait for their answers. A latency counts from the
// moment at which the request was due, so that the wait for a free connection is part of it: a proxy that stalls is not
// spared the requests that would have come meanwhile ("coordinated omission"). Every connection has been used once
// before: it is kept alive, and the cost of its first request does not count.
//
// All connections are served by one thread that sleeps in epoll_pwait2(2) to the nanosecond, for a ticker of a
// millisecond would be most of the result.
package open

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a load.
type Options struct {
	Port        int // of 127.0.0.1
	Path        string
	Connections int
	Rate        float64 // requests a second, evenly spaced
	Duration    time.Duration
}

// Result is the latency of the requests, all of which were answered with 200.
type Result struct {
	Requests  int
	Latencies []time.Duration // sorted
}

// Percentile of the latencies; p is 0 to 100.
func (r Result) Percentile(p float64) time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[min(len(r.Latencies)-1, int(float64(len(r.Latencies))*p/100))]
}

// patience is how long after the end of the load the last answers may take.
const patience = 10 * time.Second

// Run makes the requests, and returns when all of them are answered.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Connections < 1 || o.Rate <= 0 || o.Duration <= 0 {
		return Result{}, fmt.Errorf("open load: %d connections, %.0f requests/s, %s: all must be more than 0",
			o.Connections, o.Rate, o.Duration)
	}
	total := max(1, int(o.Rate*o.Duration.Seconds()))
	// One collection before is better than one amid the measurement: nothing is allocated from here on.
	latencies := make([]time.Duration, 0, total)
	p, err := connect(o)
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	if err := p.warmUp(time.Now().Add(patience)); err != nil {
		return Result{}, err
	}

	// By default the kernel may wake a sleeper 50 µs late, which would count as latency.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return Result{}, fmt.Errorf("open load: set the timer slack: %w", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0 is the default again

	began := time.Now()
	due := func(i int) time.Time { return began.Add(time.Duration(float64(i) / o.Rate * float64(time.Second))) }
	limit := began.Add(o.Duration + patience)
	for sent := 0; len(latencies) < total; {
		now := time.Now()
		for sent < total && !due(sent).After(now) && p.free() {
			if err := p.ask(due(sent)); err != nil {
				return Result{}, err
			}
			sent++
		}
		wait := max(0, limit.Sub(now))
		if sent < total && p.free() {
			wait = max(0, min(wait, due(sent).Sub(now)))
		}
		if latencies, err = p.answers(wait, latencies); err != nil {
			return Result{}, err
		}
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		if now.After(limit) {
			return Result{}, errors.New("open load: not all requests were answered: the rate is more than the proxy can do")
		}
	}
	slices.Sort(latencies)
	return Result{Requests: total, Latencies: latencies}, nil
}
