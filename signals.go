package lastcall

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/lastcall-dev/lastcall/drain"
)

// signals are those of the operating system, of the caller, of hooks and of the context, in one channel.
type signals struct {
	received    chan drain.Signal
	fromContext atomic.Bool // the first was the end of the context
	fromServer  atomic.Bool // the first was a call of the server's own Shutdown
	shutdowns   chan struct{}
}

// listenForSignals listens until stop is called.
func (s *settings) listenForSignals(ctx context.Context) (_ *signals, stop func()) {
	out := &signals{received: make(chan drain.Signal, 16), shutdowns: make(chan struct{}, 1)}
	over := make(chan struct{})
	var listening sync.WaitGroup
	own := make(chan os.Signal, 16)
	if s.signals == nil {
		signal.Notify(own, syscall.SIGTERM, os.Interrupt)
	}
	listening.Go(func() {
		ctxDone, shutdowns := ctx.Done(), out.shutdowns
		// When the context is the caller's signal.NotifyContext, one SIGTERM arrives twice: by the
		// context and by own; if the caller's own handler calls Shutdown, by that and by own. It must not be
		// taken for two, of which the second makes the last call.
		repeated := false
		var repeats drain.Repeats
		for {
			var sig drain.Signal
			isSignal := true
			select {
			case received := <-own:
				if sig = drain.Terminate; received == os.Interrupt {
					sig = drain.Interrupt
				}
				if repeats.Is() {
					continue
				}
			case sig = <-s.signals:
			case <-ctxDone:
				sig, isSignal = drain.Terminate, false
				out.fromContext.Store(true)
			case <-shutdowns: // its listeners are closed: to wait for new connections is of no use
				sig, isSignal = drain.Interrupt, false
				out.fromServer.Store(true)
			case <-over:
				return
			}
			ctxDone, shutdowns = nil, nil
			if isSignal && repeated {
				repeated = false
				continue
			}
			repeated = !isSignal
			out.send(sig)
		}
	})
	return out, func() {
		signal.Stop(own)
		close(over)
		listening.Wait()
	}
}

// send does not wait: after 16 signals that were not read, one more is of no use.
func (s *signals) send(sig drain.Signal) {
	select {
	case s.received <- sig:
	default:
	}
}

// shutdown is called when the program has called the server's own Shutdown.
func (s *signals) shutdown() {
	select {
	case s.shutdowns <- struct{}{}:
	default:
	}
}

// name is the report's name of the signal that began the termination.
func (s *signals) name(trigger drain.Signal) string {
	switch {
	case trigger == drain.Terminate && s.fromContext.Load():
		return "context"
	case trigger == drain.Interrupt && s.fromServer.Load():
		return "shutdown"
	}
	return trigger.String()
}
