package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/drain"
)

// untilTold gives a context that ends at Ctrl-C, SIGTERM, or the end of the terminal, unless nohup has that ignored.
func untilTold(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(cmd.Context(), signals...)
}

// untilToldTwice is untilTold for commands that drain: the signals after the first come from
// the channel. The function ends the listening.
func untilToldTwice(cmd *cobra.Command) (context.Context, <-chan drain.Signal, func()) {
	ctx, cancel := context.WithCancel(cmd.Context())
	caught := make(chan os.Signal, 4)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	again := make(chan drain.Signal, 4)
	done := make(chan struct{})
	var hearing sync.WaitGroup
	hearing.Go(func() {
		for {
			select {
			case <-caught:
			case <-done:
				return
			}
			if ctx.Err() == nil {
				cancel()
				continue
			}
			select {
			case again <- drain.Terminate:
			default: // it knows
			}
		}
	})
	return ctx, again, func() {
		signal.Stop(caught)
		close(done)
		hearing.Wait()
		cancel()
	}
}
