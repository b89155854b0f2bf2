package service

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
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

	old, next *strategy.Pod
	load.Load
	views []atomic.Pointer[[]string]

	deleted time.Time
	end     strategy.End
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
	t.Requests, t.Rate, t.Descriptors = t.options.Requests, t.options.Load, t.options.Descriptors
	for i := range callers {
		t.point(i, t.old)
		t.Clients = append(t.Clients, &traffic.Client{
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
	defer t.Close()
	client := &traffic.Client{ClusterIP: true, Timeout: t.options.Timeout, Targets: func() []string { return []string{t.next.Address} }}
	defer client.Close()
	if err := t.Measure(ctx, client); err != nil {
		return fmt.Errorf("%s: %w", t.strategy.Name, err)
	}
	var flying sync.WaitGroup
	// Streams on the successor have no end: they are stopped when the rest is complete.
	streams, stopStreams := context.WithCancel(ctx)
	defer stopStreams()
	loading, enough := context.WithCancel(ctx)
	defer enough()
	var loader sync.WaitGroup
	loader.Go(func() { t.Send(loading, ctx, &flying) })
	if err := node.Sleep(warmUp).Run(ctx); err != nil {
		return err
	}
	for caller := range t.Clients {
		for i, r := range t.Requests {
			within := ctx
			if r.IsEndless() {
				within = streams
			}
			flying.Go(func() { t.One(within, i, caller) })
		}
	}
	if err := node.Sleep(lead).Run(ctx); err != nil {
		return err
	}

	t.deleted = time.Now()
	var propagating sync.WaitGroup
	for i := range t.Clients {
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

// addTo adds the outcome to the strategy's row.
func (t *trial) addTo(row *outcome.Row) {
	since := func(at time.Time) int64 {
		if at.IsZero() {
			return -1
		}
		return at.Sub(t.deleted).Milliseconds()
	}
	run := outcome.Round{HookEndMS: since(t.end.App.HookEnded), TermMS: since(t.end.App.Terminated), KillMS: since(t.end.App.Killed),
		GoneMS: since(t.end.Gone()), EndedBy: endedBy(t.end), Cause: t.cause()}
	if t.end.App.HookError != nil {
		run.HookError = t.end.App.HookError.Error()
	}
	row.Load = t.Rate
	answered, lost := t.Counts()
	row.Requests += answered + lost
	type connection struct {
		client int
		number int64
	}
	used := map[connection]bool{}
	for _, s := range t.Sent() {
		c := connection{s.Client, s.Conn}
		kept := used[c] && s.Conn != 0
		used[c] = true
		one := outcome.Sending{Request: s.Request, Client: s.Client, Conn: s.Conn, OnNew: s.Address == t.next.Address,
			FromMS: since(s.Began), ToMS: since(s.Last), Status: s.Status, Reason: s.Reason}
		if s.Reason != "" {
			one.Phase, one.Detail = t.phase(s.Outcome, s.Reason), s.Detail
			row.Lose(one, t.Requests[s.Request].String(), t.fix(t.References[s.Request], s.Reason, one.Phase, kept))
		}
		run.Sendings = append(run.Sendings, one)
	}
	row.Add(run)
}
