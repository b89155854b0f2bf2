package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/signals"
)

// drainSignals returns a context that the first signal ends, and a channel of the signals after it.
func drainSignals(ctx context.Context, log *slog.Logger) (_ context.Context, later <-chan drain.Signal, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	received, stopReceiving := signals.Receive(signals.Options{Log: log})
	rest, stopped := make(chan drain.Signal, 1), make(chan struct{})
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		select {
		case <-received.Stop:
			cancel()
		case <-stopped:
			return
		}
		for {
			select {
			case s := <-received.Stop:
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
		stopReceiving()
		close(stopped)
		forwarding.Wait()
		cancel()
	}
}
