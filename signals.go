package lastcall

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/lastcall-dev/lastcall/drain"
)

// receiveSignals sends requests what signals, those of the caller, and the end of the context request, until stop is
// called.
func (s *settings) receiveSignals(ctx context.Context) (requests *drain.Requests, stop func()) {
	requests = new(drain.Requests)
	over := make(chan struct{})
	own := make(chan os.Signal, 16)
	if s.signals == nil {
		signal.Notify(own, syscall.SIGTERM, os.Interrupt)
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		ended := ctx.Done()
		for {
			select {
			case sig := <-own:
				if sig == os.Interrupt {
					requests.Send(drain.Interrupt)
				} else {
					requests.Send(drain.Terminate)
				}
			case sig := <-s.signals:
				requests.Send(sig)
			case <-ended:
				ended = nil
				requests.Send(drain.ContextEnded)
			case <-over:
				return
			}
		}
	})
	return requests, func() {
		signal.Stop(own)
		close(over)
		receiving.Wait()
	}
}
