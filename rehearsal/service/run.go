package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// around is about how long the start of the pods and the requests without load take.
const around = 10 * time.Second

// Run rehearses the end of a service's pod under each strategy, all at the same time. When it returns, all processes
// that it started have ended. An error is about the set-up (load.OptionError: about an option), or ctx's; lost requests
// are in the result.
func Run(ctx context.Context, o Options) (*outcome.Result, error) {
	strategies, err := o.check()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	about := time.Duration(o.Repeat) * (o.Lasting + o.Pod.Grace + o.Propagation.To + around)
	progress := console.NewProgress(o.Progress, func() string {
		return fmt.Sprintf("%d s of about %s at most; strategies side by side: %d", int(time.Since(began).Seconds()),
			terminal.Seconds(about), len(strategies))
	})
	defer progress.End()
	env := &strategy.Env{
		Programs: strategy.Programs{Lastcall: o.Lastcall, Self: o.Self, App: o.Command},
		Grace:    o.Pod.Grace, MaxDelay: 10 * time.Second,
	}
	if !o.IsBuiltIn {
		env.Service = &o.Pod.Service
		env.Service.IsTCP = o.isTCP()
	}
	dir, end, err := env.Begin(ctx, o.KeepLogs, strategies)
	if err != nil {
		return nil, err
	}
	defer end()
	// When ctx ends, the node kills the pods.
	broken := context.AfterFunc(ctx, env.Node.Close)
	defer broken()

	res := &outcome.Result{
		Schema: outcome.Schema, OK: true, App: o.Command, Workload: o.Pod.Workload,
		Hook: o.Pod.Hook.String(), GraceMS: o.Pod.Grace.Milliseconds(),
		PropagationMS: [2]int64{o.Propagation.From.Milliseconds(), o.Propagation.To.Milliseconds()},
		Repeat:        o.Repeat, Notes: o.Pod.Notes, Logs: o.KeepLogs, Began: began,
	}
	for _, s := range strategies {
		res.Rows = append(res.Rows, outcome.Row{Strategy: s.Name, Words: s.Words, Reasons: map[traffic.Failure]int{}})
	}
	for run := range o.Repeat {
		trials, err := runAll(ctx, env, &o, strategies, filepath.Join(dir, "run-"+strconv.Itoa(run+1)))
		if err != nil {
			return nil, err
		}
		for i, t := range trials {
			res.Rows[i].Record(t.load, &t.done)
		}
		res.Requests, res.PID1 = outcome.Kinds(trials[0].load), string(trials[0].pods[0].App.Init())
	}
	if res.PID1 == string(node.Imitated) {
		res.Notes = append(slices.Clone(res.Notes), "this machine permits no PID namespaces, so the app is not PID 1 as in "+
			"a container: a stop signal that it does not handle is withheld, as the kernel does")
	}
	res.OK = res.Rows[0].Lost == 0
	res.TookMS = time.Since(began).Milliseconds()
	return res, nil
}

// runAll runs one trial of each strategy.
func runAll(ctx context.Context, env *strategy.Env, o *Options, strategies []strategy.Strategy,
	dir string) ([]*trial, error) {
	trials := make([]*trial, len(strategies))
	errs := make([]error, len(strategies))
	var running sync.WaitGroup
	for i, s := range strategies {
		t := &trial{env: env, strategy: s, options: o, dir: filepath.Join(dir, s.Name)}
		trials[i] = t
		running.Go(func() {
			if errs[i] = t.start(ctx); errs[i] != nil && len(o.Pod.Missing) > 0 {
				errs[i] = fmt.Errorf("%w\nvariables that the manifest sets and the rehearsal does not: %s "+
					"(add their ConfigMap or Secret to the input of -f, or set them in this environment)", errs[i], strings.Join(o.Pod.Missing, ", "))
			} else if errs[i] == nil {
				errs[i] = t.run(ctx)
			}
			t.stop()
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return trials, errors.Join(errs...)
}
