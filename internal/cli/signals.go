package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
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
