package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/signals"
)

// SignalContext returns a context that ends at Ctrl-C, at SIGTERM, and when the terminal closes, unless nohup ignores
// that signal.
func SignalContext(ctx context.Context) (context.Context, context.CancelFunc) {
	stop := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stop = append(stop, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, stop...)
}

// DrainSignals returns a channel of the signals that start a drain, and hasten one that has started: SIGTERM, SIGQUIT
// and Ctrl-C.
func DrainSignals() (_ <-chan drain.Signal, stop func()) {
	received, stop := signals.Receive(signals.Options{})
	return received.Stop, stop
}
