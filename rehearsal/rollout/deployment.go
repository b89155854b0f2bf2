package rollout

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// deployment is one strategy's pods, gateway and clients.
type deployment struct {
	env      *strategy.Env
	strategy strategy.Strategy
	dir      string
	latest   time.Duration // maximum propagation delay

	gateway *strategy.Gateway
	pods    []*strategy.Pod // the oldest first
	started int
	views   []*traffic.Endpoints // the gateway's and the inside clients'
	inside  atomic.Pointer[[]string]
	clients []*traffic.Client // through the gateway, inside
	counts  []*count

	replaced, killed atomic.Int64
	stayed           atomic.Int64 // nanoseconds, of all replaced pods, from their deletion to their end

	mu     sync.Mutex // guards errs
	errs   []error
	ending sync.WaitGroup
}

func (d *deployment) fault(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errs = append(d.errs, err)
}

// start starts the pods and the gateway.
func (d *deployment) start(ctx context.Context) error {
	addresses := make([]string, replicas)
	for i := range replicas {
		p, err := d.startPod(ctx)
		if err != nil {
			return err
		}
		d.pods = append(d.pods, p)
		addresses[i] = p.Address
	}
	var err error
	if d.gateway, err = d.env.StartGateway(ctx, filepath.Join(d.dir, d.strategy.Name), addresses); err != nil {
		return fmt.Errorf("%s: %w", d.strategy.Name, err)
	}
	d.views = []*traffic.Endpoints{
		traffic.NewEndpoints(d.latest, addresses, func(list []string) {
			if err := d.gateway.SetEndpoints(list); err != nil {
				d.fault(err)
			}
		}),
		traffic.NewEndpoints(d.latest, addresses, func(list []string) { d.inside.Store(&list) }),
	}
	d.clients = []*traffic.Client{
		{Targets: func() []string { return []string{d.gateway.Address} }},
		{Targets: func() []string { return *d.inside.Load() }},
	}
	d.counts = []*count{{}, {}}
	return nil
}

func (d *deployment) startPod(ctx context.Context) (*strategy.Pod, error) {
	d.started++
	return d.env.StartPod(ctx, d.strategy, filepath.Join(d.dir, d.strategy.Name, "pod-"+strconv.Itoa(d.started)))
}

// replace replaces pods one after another until ctx ends, as a Deployment with maxSurge 1, maxUnavailable 0 and
// minReadySeconds longer than the propagation delay does. It returns when the terminated pods are gone.
func (d *deployment) replace(ctx context.Context) {
	defer d.ending.Wait()
	// Terminations and their propagation continue after ctx ends.
	whole := context.WithoutCancel(ctx)
	for {
		fresh, err := d.startPod(ctx)
		if err != nil {
			if ctx.Err() == nil {
				d.fault(err)
			}
			return
		}
		for _, v := range d.views {
			v.Add(whole, fresh.Address)
		}
		d.pods = append(d.pods, fresh)
		if node.Sleep(d.latest+time.Second).Run(ctx) != nil {
			return
		}
		old := d.pods[0]
		d.pods = slices.Delete(d.pods, 0, 1)
		for _, v := range d.views {
			v.Remove(whole, old.Address)
		}
		d.ending.Go(func() {
			end := old.Terminate(whole)
			d.replaced.Add(1)
			d.stayed.Add(int64(end.Gone().Sub(end.Began)))
			if end.Killed() {
				d.killed.Add(1)
			}
		})
	}
}

// run sends the load while pods are replaced.
func (d *deployment) run(ctx context.Context, n, rate int) error {
	replacing, enough := context.WithCancel(ctx)
	var replacer sync.WaitGroup
	replacer.Go(func() { d.replace(replacing) })
	load(ctx, n, rate, d.clients, d.counts)
	enough()
	replacer.Wait()
	for _, v := range d.views {
		v.Wait()
	}
	for _, c := range d.clients {
		c.Close()
	}
	return errors.Join(d.errs...)
}
