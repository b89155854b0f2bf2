package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Run runs a rollout with every strategy at the same time. When it returns, all processes that it started have ended. An
// error is about the set-up (strategy.OptionError: about an option), or ctx's; lost requests are in the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	strategies, err := o.check()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	line := func() string { return "looking for lastcall, which is built if it does not exist" }
	var progress *console.Progress
	show := func(line func() string) {
		if progress != nil {
			progress.Show(line)
		}
	}
	if o.Progress != nil {
		progress = console.NewProgress(o.Progress, line)
		defer progress.End()
	}
	n := node.New()
	defer n.Close()
	dir, done, err := strategy.Folder(o.KeepLogs)
	if err != nil {
		return nil, err
	}
	defer done()
	programs, err := strategy.FindPrograms(ctx, o.Lastcall, o.Self, strategies)
	if err != nil {
		return nil, err
	}
	t := &strategy.Env{Node: n, Ports: &node.Ports{}, Programs: programs, Grace: o.Grace, MaxDelay: 10 * time.Second}
	var all []*deployment
	var ready atomic.Int64
	show(func() string {
		return fmt.Sprintf("starting %d deployments: %d are ready", len(strategies), ready.Load())
	})
	for _, s := range strategies {
		d := &deployment{env: t, strategy: s, dir: dir, latest: o.Propagation}
		if err := d.start(ctx); err != nil {
			return nil, err
		}
		all = append(all, d)
		ready.Add(1)
	}

	// When ctx ends, the node kills the pods.
	broken := context.AfterFunc(ctx, n.Close)
	defer broken()
	loaded := time.Now()
	show(func() string { return status(all, o, time.Since(loaded)) })
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, d := range all {
		running.Go(func() { errs[i] = d.run(ctx, o.Requests, o.Rate) })
	}
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return result(all, o, time.Since(began)), nil
}

// status is the progress line.
func status(all []*deployment, o Options, since time.Duration) string {
	var parts []string
	most := 0
	for _, d := range all {
		asked, failed := 0, 0
		for _, c := range d.counts {
			a, f := c.failed()
			asked, failed = asked+a, failed+f
		}
		most = max(most, asked)
		parts = append(parts, fmt.Sprintf("%s %d", d.strategy.Name, failed))
	}
	return fmt.Sprintf("%d s: %d of %d requests each; lost: %s", int(since.Seconds()), most, o.Requests, strings.Join(parts, ", "))
}
