package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

// drainSignals returns a context that the first signal ends, that signal (once the context has ended), and a channel of
// the signals after it.
func drainSignals(ctx context.Context, log *slog.Logger) (_ context.Context, first func() drain.Signal, later <-chan drain.Signal, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	received, stopReceiving := signals.Receive(signals.Options{Log: log})
	rest, stopped := make(chan drain.Signal, 1), make(chan struct{})
	var forwarding sync.WaitGroup
	var began drain.Signal
	forwarding.Go(func() {
		select {
		case began = <-received.Stop:
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
	return ctx, func() drain.Signal { return began }, rest, func() {
		stopReceiving()
		close(stopped)
		forwarding.Wait()
		cancel()
	}
}
