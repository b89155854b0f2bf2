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

// signals are those of the operating system, of the caller, of hooks and of the context, in one
// channel.
type signals struct {
	received    chan drain.Signal
	fromContext atomic.Bool // the first was the end of the context
}

// listenForSignals listens until stop is called.
func (s *settings) listenForSignals(ctx context.Context) (_ *signals, stop func()) {
	out := &signals{received: make(chan drain.Signal, 16)}
	over := make(chan struct{})
	var listening sync.WaitGroup
	own := make(chan os.Signal, 16)
	if s.signals == nil {
		signal.Notify(own, syscall.SIGTERM, os.Interrupt)
	}
	listening.Go(func() {
		ctxDone := ctx.Done()
		// When the context is the caller's signal.NotifyContext, one SIGTERM arrives twice: by the
		// context and by own. It must not be taken for two, of which the second makes the last call.
		repeated := false
		for {
			select {
			case sig := <-own:
				ctxDone = nil
				if repeated {
					repeated = false
					continue
				}
				out.send(map[bool]drain.Signal{false: drain.Terminate, true: drain.Interrupt}[sig == os.Interrupt])
			case sig := <-s.signals:
				ctxDone = nil
				out.send(sig)
			case <-ctxDone:
				ctxDone, repeated = nil, true
				out.fromContext.Store(true)
				out.send(drain.Terminate)
			case <-over:
				return
			}
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

// name is what the report calls the signal that began the termination.
func (s *signals) name(trigger drain.Signal) string {
	if trigger == drain.Terminate && s.fromContext.Load() {
		return "context"
	}
	return trigger.String()
}
