package service

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

const (
	callers = 4 // clients, each with its own propagation delay

	warmUp = time.Second            // load before the deletion
	lead   = 300 * time.Millisecond // before the deletion, each client sends each request once
	after  = time.Second            // load after the last client has learned of the successor and the old pod is gone
)

// trial is one strategy's old pod, its successor and its clients.
type trial struct {
	env      *strategy.Env
	strategy strategy.Strategy
	options  *Options
	dir      string

	old, next  *strategy.Pod
	clients    []*traffic.Client
	views      []atomic.Pointer[[]string]
	references []reference // of the options' requests
	load       float64     // requests a second

	deleted time.Time
	end     strategy.End

	mu      sync.Mutex // guards what follows
	records []sending
}

// sending is one request of the trial, and how it ended.
type sending struct {
	request, caller int
	atDeletion      bool // sent to be in flight at the deletion
	traffic.Outcome
}

// start starts both pods.
func (t *trial) start(ctx context.Context) (err error) {
	if t.old, err = t.env.StartPod(ctx, t.strategy, filepath.Join(t.dir, "old")); err != nil {
		return err
	}
	if t.next, err = t.env.StartPod(ctx, t.strategy, filepath.Join(t.dir, "new")); err != nil {
		return err
	}
	t.views = make([]atomic.Pointer[[]string], callers)
	for i := range callers {
		t.point(i, t.old)
		t.clients = append(t.clients, &traffic.Client{
			ClusterIP: true, Timeout: t.options.Timeout,
			Targets: func() []string { return *t.views[i].Load() },
		})
	}
	return nil
}

// point makes a pod the only endpoint that a client knows.
func (t *trial) point(caller int, p *strategy.Pod) { t.views[caller].Store(&[]string{p.Address}) }

// run sends the load, deletes the old pod, and returns when each request has ended.
func (t *trial) run(ctx context.Context) error {
	defer func() {
		for _, c := range t.clients {
			c.Close()
		}
	}()
	if err := t.measure(ctx); err != nil {
		return fmt.Errorf("%s: %w", t.strategy.Name, err)
	}
	var flying sync.WaitGroup
	// Streams on the successor have no end: they are stopped when the rest is complete.
	streams, stopStreams := context.WithCancel(ctx)
	defer stopStreams()
	loading, enough := context.WithCancel(ctx)
	defer enough()
	var loader sync.WaitGroup
	loader.Go(func() { t.sendLoad(loading, ctx, &flying) })
	if err := node.Sleep(warmUp).Run(ctx); err != nil {
		return err
	}
	for caller := range t.clients {
		for i, r := range t.options.Requests {
			within := ctx
			if r.IsEndless() {
				within = streams
			}
			flying.Go(func() { t.send(within, i, caller, true) })
		}
	}
	if err := node.Sleep(lead).Run(ctx); err != nil {
		return err
	}

	t.deleted = time.Now()
	var propagating sync.WaitGroup
	for i := range t.clients {
		propagating.Go(func() {
			if node.Sleep(t.options.Propagation.at(i, callers)).Run(ctx) == nil {
				t.point(i, t.next)
			}
		})
	}
	t.end = t.old.Terminate(ctx)
	propagating.Wait()
	err := node.Sleep(after).Run(ctx)
	enough()
	loader.Wait()
	stopStreams()
	flying.Wait()
	return err
}

// send sends a request and records its outcome.
func (t *trial) send(ctx context.Context, request, caller int, atDeletion bool) {
	o := t.clients[caller].Do(ctx, t.options.Requests[request].Request)
	if o.Failure == traffic.Stopped {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records = append(t.records, sending{request, caller, atDeletion, o})
}
