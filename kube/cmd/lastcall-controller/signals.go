package main

import (
	"context"
	"sync"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/cli"
)

// drainSignals returns a context that the first signal ends, and a channel of the signals after it.
func drainSignals(ctx context.Context) (_ context.Context, later <-chan drain.Signal, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals, stopSignals := cli.DrainSignals()
	rest, stopped := make(chan drain.Signal, 1), make(chan struct{})
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		select {
		case <-signals:
			cancel()
		case <-stopped:
			return
		}
		for {
			select {
			case s := <-signals:
				select {
				case rest <- s:
				default: // one is waiting already
				}
			case <-stopped:
				return
			}
		}
	})
	return ctx, rest, func() {
		stopSignals()
		close(stopped)
		forwarding.Wait()
		cancel()
	}
}
