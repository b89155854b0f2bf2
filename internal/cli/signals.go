package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/lastcall-dev/lastcall/drain"
)

// SignalContext returns a context that ends at Ctrl-C, at SIGTERM, and when the terminal closes, unless nohup ignores
// that signal.
func SignalContext(ctx context.Context) (context.Context, context.CancelFunc) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, signals...)
}

// DrainSignals returns a channel of the signals that start a drain, and hasten one that has started: SIGTERM, SIGQUIT
// and Ctrl-C. SIGPIPE is ignored: a log reader that exits must not kill the process in the middle of a drain.
func DrainSignals() (signals <-chan drain.Signal, stop func()) {
	signal.Ignore(syscall.SIGPIPE)
	in, out := make(chan os.Signal, 4), make(chan drain.Signal)
	stopped := make(chan struct{})
	signal.Notify(in, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			select {
			case got := <-in:
				next := drain.Terminate
				if got == syscall.SIGINT {
					next = drain.Interrupt
				}
				select {
				case out <- next:
				case <-stopped:
					return
				}
			case <-stopped:
				return
			}
		}
	})
	return out, func() {
		signal.Stop(in)
		close(stopped)
		forwarding.Wait()
	}
}
