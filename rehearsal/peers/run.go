package peers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// parallelStarts is how many pods are started at the same time.
const parallelStarts = 2

// apart is the time between the starts of the scenes: not all pods must end at the same time.
const apart = 170 * time.Millisecond

// Run measures every peer in every scene at the same time. When it returns, all processes that it started have ended.
// An error comes from the set-up (a strategy.OptionError from an option) or from ctx. A row that differs from the
// expectation is not an error.
func Run(ctx context.Context, o Options) (*Result, error) {
	chosen, err := o.check()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var progress *console.Progress
	show := func(line func() string) {
		if progress != nil {
			progress.Show(line)
		}
	}
	if o.Progress != nil {
		progress = console.NewProgress(o.Progress, func() string { return "looking for lastcall, which is built if it does not exist" })
		defer progress.End()
	}
	envoy, err := strategy.FindEnvoy(o.EnvoyPath)
	if err != nil {
		return nil, err
	}
	if o.PilotAgent != "" {
		if o.PilotAgent, err = strategy.FindPilotAgent(o.PilotAgent); err != nil {
			return nil, err
		}
	}
	var strategies []strategy.Strategy
	var rows []*row
	for _, s := range Scenes() {
		for _, p := range chosen {
			p = p.by(o.PilotAgent)
			rows = append(rows, newRow(p, s, o.Delay))
			if p.form == lastcallPod || p.form == lastcallManager || p.form == originalPod {
				strategies = append(strategies, strategy.Strategy{Sidecar: strategy.Lastcall})
			}
		}
	}
	programs, err := strategy.FindPrograms(ctx, o.Lastcall, o.Self, strategies)
	if err != nil {
		return nil, err
	}
	programs.Envoy, programs.PilotAgent = envoy, o.PilotAgent
	dir, done, err := strategy.Folder(o.KeepLogs)
	if err != nil {
		return nil, err
	}
	defer done()
	n := node.New()
	defer n.Close()
	t := &strategy.Env{Node: n, Ports: &node.Ports{}, Programs: programs, Grace: defaultGrace, MaxDelay: o.Delay + spread}

	var ready atomic.Int64
	show(func() string { return fmt.Sprintf("starting %d Envoys: %d are ready", len(rows), ready.Load()) })
	if err := start(ctx, rows, t, dir, &ready); err != nil {
		return nil, err
	}
	meter := lag.Start()
	defer meter.End()
	told := time.Now()
	show(func() string { return status(rows, time.Since(told)) })
	if err := runAll(ctx, rows, o.Limit); err != nil {
		return nil, err
	}
	for _, r := range rows {
		r.allowance = meter.Allowance(r.began, time.Now())
	}
	return result(rows, o, time.Since(began)), nil
}

// start starts every row's processes, a few at a time.
func start(ctx context.Context, rows []*row, t *strategy.Env, dir string, ready *atomic.Int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, parallelStarts)
	var starting sync.WaitGroup
	for _, r := range rows {
		starting.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return
			}
			if err := r.start(ctx, t, dir); err != nil {
				cancel(err)
				return
			}
			ready.Add(1)
		})
	}
	starting.Wait()
	err := context.Cause(ctx)
	if err != nil {
		for _, r := range rows {
			r.idle.hangUp()
		}
	}
	return err
}

// runAll runs all scenes. An error in one ends all.
func runAll(ctx context.Context, rows []*row, limit time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for i, r := range rows {
		running.Go(func() {
			if !sleep(ctx, time.Duration(i)*apart) {
				r.idle.hangUp()
				return
			}
			if err := r.run(ctx, limit); err != nil {
				// the first error; the others follow from it
				cancel(fmt.Errorf("%s, %s: %w", r.peer.Name, r.scene, err))
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// status is the progress line.
func status(rows []*row, since time.Duration) string {
	gone, name := 0, ""
	for _, r := range rows {
		if r.gone.Load() {
			gone++
		} else {
			name = r.peer.Name + " (" + string(r.scene) + ")"
		}
	}
	text := fmt.Sprintf("%d s: %d of %d pods are gone", int(since.Seconds()), gone, len(rows))
	if name != "" {
		text += "; running: " + name
	}
	return text
}
