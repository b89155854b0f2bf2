package rehearsal

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/rehearsal/gateway"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// row is one strategy in the experiment.
type row struct {
	strategy strategy.Strategy
	pod      *strategy.Pod
	gateway  *gateway.Gateway
	idle     *idleClients

	answer  traffic.Outcome
	end     strategy.End
	report  *drain.Report
	logLine string // the gateway's, of the request

	answered chan struct{} // closed when answer is complete
	gone     atomic.Bool
}

// start starts the row's pod and gateway.
func (r *row) start(ctx context.Context, t *strategy.Env, dir string) (err error) {
	dir = filepath.Join(dir, r.strategy.Name)
	if r.pod, err = t.StartPod(ctx, r.strategy, dir); err != nil {
		return err
	}
	if r.gateway, err = gateway.Start(dir, []string{r.pod.Address}); err != nil {
		return fmt.Errorf("%s: %w", r.strategy.Name, err)
	}
	if r.strategy.Idle {
		if r.idle, err = connectIdle(ctx, r.pod.Address); err != nil {
			return fmt.Errorf("%s: %w", r.strategy.Name, err)
		}
	}
	return nil
}

// send sends the request and waits for the end of the response.
func (r *row) send(ctx context.Context, path string) {
	targets := func() []string { return []string{r.gateway.Address} }
	client := &traffic.Client{Targets: targets, Timeout: maxDelay + time.Hour} // ctx ends it
	defer client.Close()
	r.answer = client.Do(ctx, traffic.Request{Path: path})
	close(r.answered)
}

// scaleDown terminates the pod, removes its endpoint from the gateway after the propagation delay, and returns when the
// pod is gone.
func (r *row) scaleDown(ctx context.Context) {
	var removal sync.WaitGroup
	removal.Go(func() {
		if node.Sleep(propagation).Run(ctx) == nil {
			r.gateway.SetEndpoints(nil)
		}
	})
	r.end = r.pod.Terminate(ctx)
	r.gone.Store(true)
	removal.Wait()
}

// settle stops the rest of the row, and reads the report and the gateway's log.
func (r *row) settle(path string) (err error) {
	r.idle.end(time.Second)
	r.gateway.Stop()
	r.logLine = r.gateway.Line(path)
	r.report, err = r.pod.Report()
	return err
}

// lastByte is when the request ended, from the scale-down.
func (r *row) lastByte() time.Duration { return r.answer.Last.Sub(r.end.Began) }

// stayed is how long the pod existed after the scale-down.
func (r *row) stayed() time.Duration { return r.end.Gone().Sub(r.end.Began) }
