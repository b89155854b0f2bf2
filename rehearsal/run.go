// Package rehearsal runs the published experiment on one machine: a client sends a slow request through a gateway and a
// sidecar, the deployment is scaled to 0 at that moment, and the client's result is compared with what is expected of
// each way to stop a pod.
//
// App and sidecar are processes of the real binaries on real sockets, and package node's kubelet sends them real
// signals by Kubernetes' rules. The gateway runs in this process, or is a real Envoy. Where a strategy is Istio's, the
// sidecar is lastcall's agent in --compat istio, which ends as pilot-agent with Envoy does.
//
// What is expected is computed from the timers (expect.go): a shorter request or a longer grace period is judged as
// correctly as the experiment's own.
//
// Times are measured by the client and this process: a request is answered when the client has read the last byte, and
// a pod is gone when wait4 has returned for its last container.
package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// parallelStarts is how many pods are started at the same time.
const parallelStarts = 3

// clientMargin is how much longer than the request and the grace period together a client waits.
const clientMargin = 20 * time.Second

// Run runs the experiment. When it returns, all processes that it started have ended, and no file is left except in
// KeepLogs. An error is about the set-up (load.OptionError: about an option), or ctx's. A row that differs from what
// is expected is no error: see Result.OK.
func Run(ctx context.Context, o Options) (*Result, error) {
	strategies, err := o.check()
	if err != nil {
		return nil, err
	}
	p := &experiment{options: o, began: time.Now()}
	for _, s := range strategies {
		p.rows = append(p.rows, &row{strategy: s, answered: make(chan struct{})})
	}
	looking := func() string { return "looking for lastcall, which is built if it does not exist" }
	p.progress = console.NewProgress(o.Progress, looking)
	defer p.progress.End()
	p.env = strategy.Env{Setup: o.Setup, Grace: o.Grace, MaxDelay: max(o.Delay, 10*time.Second), Proxy: o.Proxy}
	dir, end, err := p.env.Begin(ctx, strategies)
	if err != nil {
		return nil, err
	}
	defer end()
	p.dir = dir
	p.meter = startCPUWait()
	defer p.meter.end()
	return p.run(ctx)
}

// experiment is one run.
type experiment struct {
	options  Options
	dir      string
	env      strategy.Env
	rows     []*row
	began    time.Time
	progress *console.Progress
	meter    *cpuWait
}

func (p *experiment) run(ctx context.Context) (*Result, error) {
	defer func() {
		for _, r := range p.rows {
			r.idle.end(0)
			r.gateway.Stop()
		}
	}()
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	path := "/delay/" + strconv.FormatFloat(p.options.Delay.Seconds(), 'f', -1, 64)
	clients, giveUp := context.WithTimeout(ctx, p.options.Delay+p.options.Grace+clientMargin)
	defer giveUp()
	var sending sync.WaitGroup
	defer sending.Wait()
	defer giveUp() // after an error no client waits for its response

	before, err := node.Established()
	if err != nil {
		return nil, err
	}
	ports := make(map[int]int)
	for _, r := range p.rows {
		port := r.pod.Arrival(p.env.Proxy)
		ports[port] = before[port]
	}
	for _, r := range p.rows {
		sending.Go(func() { r.send(clients, path) })
	}
	if err := strategy.AwaitInFlight(ctx, ports); err != nil {
		return nil, err
	}

	scaled := time.Now()
	p.progress.Show(func() string { return p.status(scaled) })
	errs := make([]error, len(p.rows))
	results := make([]Row, len(p.rows))
	var ending sync.WaitGroup
	for i, r := range p.rows {
		ending.Go(func() {
			r.scaleDown(ctx)
			<-r.answered
			if ctx.Err() != nil {
				return
			}
			if errs[i] = r.settle(path); errs[i] == nil {
				results[i] = p.judge(r, path)
			}
		})
	}
	ending.Wait()
	sending.Wait()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p.result(path, results), nil
}

// start starts the processes of all rows, a few at a time, and waits until all are ready: the scale-down comes at the
// same time for all.
func (p *experiment) start(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, parallelStarts)
	var ready atomic.Int32
	p.progress.Show(func() string {
		return fmt.Sprintf("starting %s, each with a gateway: %d ready",
			terminal.Count(len(p.rows), "pod"), ready.Load())
	})
	var starting sync.WaitGroup
	for _, r := range p.rows {
		starting.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return
			}
			if err := r.start(ctx, &p.env, p.dir); err != nil {
				cancel(err) // the first error; the others follow from it
			}
			ready.Add(1)
		})
	}
	starting.Wait()
	return context.Cause(ctx)
}

// status is the progress line after the scale-down.
func (p *experiment) status(scaled time.Time) string {
	answered, gone, last := 0, 0, time.Duration(0)
	for _, r := range p.rows {
		select {
		case <-r.answered:
			answered++
		default:
		}
		if r.gone.Load() {
			gone++
		} else {
			last = max(last, r.strategy.GraceOr(p.options.Grace)+drain.LeastGrace)
		}
	}
	passed := time.Since(scaled)
	return fmt.Sprintf("%d s: %d of %s ended, %s gone; at most %d s left", int(passed.Seconds()), answered,
		terminal.Count(len(p.rows), "request"), terminal.Count(gone, "pod"), int(max(0, last-passed).Seconds()))
}

const (
	// DefaultDelay is that of the published experiment.
	DefaultDelay = 10 * time.Second

	minDelay = time.Second
	maxDelay = 10 * time.Minute

	// propagation is how long it takes from the scale-down until the gateway removes the pod's endpoint.
	propagation = time.Second
)

// Options of a rehearsal.
type Options struct {
	strategy.Setup               // by default all strategies
	Delay          time.Duration // of the request: /delay/N
	Grace          time.Duration // terminationGracePeriodSeconds, whole seconds
	Proxy          string        // of the sidecars: pipe (also empty), envoy or istio-agent
}

// check returns the strategies, or an error for invalid options.
func (o Options) check() ([]strategy.Strategy, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	all := strategy.Strategies()
	if o.Proxy == strategy.ProxyIstioAgent {
		all = append(all, strategy.NextToIstio()...)
	}
	strategies, err := strategy.Select(all, o.Strategies)
	if err != nil {
		bad("--strategy: %w", err)
	}
	if o.Delay < minDelay || o.Delay > maxDelay {
		bad("--delay is %v: must be %v to %v", o.Delay, minDelay, maxDelay)
	}
	if err := strategy.CheckGrace(o.Grace); err != nil {
		bad("--grace %w", err)
	}
	if len(errs) > 0 {
		return nil, load.OptionError{Err: errors.Join(errs...)}
	}
	return strategies, nil
}
