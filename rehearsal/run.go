package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// parallelStarts is how many pods are started at the same time.
const parallelStarts = 3

// patience is how long after everything should be over a client or pod is given up.
const patience = 20 * time.Second

// Run plays the rehearsal. Whatever comes, nothing that it has started is left
// when it returns, and no file but in KeepLogs. An error is one of the set-up
// (strategy.OptionError: of an option) or ctx's; a row that does not come out as stated is
// told by the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	strategies, err := o.check()
	if err != nil {
		return nil, err
	}
	p := &experiment{options: o, began: time.Now()}
	for _, s := range strategies {
		p.rows = append(p.rows, &row{strategy: s})
	}
	if o.Progress != nil {
		p.progress = console.NewProgress(o.Progress, func() string { return "finding lastcall, which is built if it is not there" })
		defer p.progress.End()
	}
	n := node.New()
	defer n.Close()
	if p.ask, err = clientFor(o.Client, n); err != nil {
		return nil, strategy.OptionError{Err: err}
	}
	dir, done, err := strategy.Folder(o.KeepLogs)
	if err != nil {
		return nil, err
	}
	defer done()
	p.dir = dir
	p.env = &strategy.Env{Node: n, Ports: &node.Ports{}, Grace: o.Grace, MaxDelay: max(o.Delay, 10*time.Second), Proxy: o.Proxy}
	if p.env.Programs, err = strategy.FindPrograms(ctx, o.Lastcall, o.Self, strategies); err != nil {
		return nil, err
	}
	p.env.Programs.App, p.env.Programs.Gateway = o.App, o.Gateway
	if o.needsEnvoy() {
		if p.env.Programs.Envoy, err = strategy.FindEnvoy(o.EnvoyPath); err != nil {
			return nil, err
		}
	}
	p.meter = lag.Start()
	defer p.meter.End()
	return p.run(ctx)
}

// play is a rehearsal under way.
type experiment struct {
	options   Options
	ask       client
	dir       string
	env       *strategy.Env
	rows      []*row
	behaviour *strategy.AppBehaviour // of an app that is not built in
	began     time.Time
	progress  *console.Progress
	meter     *lag.Meter
}

func (p *experiment) show(line func() string) {
	if p.progress != nil {
		p.progress.Show(line)
	}
}

func (p *experiment) run(ctx context.Context) (*Result, error) {
	defer func() {
		for _, r := range p.rows {
			r.idle.close()
		}
	}()
	if p.options.App != "" {
		p.show(func() string { return "looking at what the app does at SIGTERM" })
		h, err := p.env.AppBehaviour(ctx, p.dir)
		if err != nil {
			return nil, fmt.Errorf("find out what the app does at SIGTERM: %w", err)
		}
		p.behaviour = &h
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	path := "/delay/" + strconv.FormatFloat(p.options.Delay.Seconds(), 'f', -1, 64)
	clients, giveUp := context.WithTimeout(ctx, p.options.Delay+p.options.Grace+patience)
	defer giveUp()
	var asking sync.WaitGroup
	defer asking.Wait()
	// The other way out: what is left is killed, and the clients have their end.
	defer giveUp()

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
		asking.Go(func() { r.ask(clients, p.ask, path) })
	}
	if err := strategy.AwaitInFlight(ctx, ports); err != nil {
		return nil, err
	}

	scaled := time.Now()
	p.show(func() string { return p.standing(scaled) })
	errs := make([]error, len(p.rows))
	var ending sync.WaitGroup
	for i, r := range p.rows {
		ending.Go(func() { errs[i] = r.scaleDown(ctx, p.options.Propagation) })
	}
	ending.Wait()
	asking.Wait()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	for i, r := range p.rows {
		errs[i] = errors.Join(errs[i], r.settle(path))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p.result(path), nil
}

// start starts every row's processes, a few at a time, and waits until all
// are ready: the scale-down's moment is the same for all.
func (p *experiment) start(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, parallelStarts)
	ready := make(chan struct{}, len(p.rows))
	p.show(func() string {
		return fmt.Sprintf("starting %d pods and gateways: %d are ready", len(p.rows), len(ready))
	})
	var starting sync.WaitGroup
	for _, r := range p.rows {
		starting.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return
			}
			if err := r.start(ctx, p.env, p.dir); err != nil {
				cancel(err) // the first one is told; the others follow from it
				return
			}
			ready <- struct{}{}
		})
	}
	starting.Wait()
	return context.Cause(ctx)
}

// standing is the progress line after the scale-down.
func (p *experiment) standing(scaled time.Time) string {
	answered, gone := 0, 0
	names := ""
	for _, r := range p.rows {
		if r.answered.Load() {
			answered++
		}
		if r.gone.Load() {
			gone++
		} else {
			names += ", " + r.strategy.Name
		}
	}
	text := fmt.Sprintf("%d s after the scale-down: %d of %d requests ended, %d pods gone", int(time.Since(scaled).Seconds()), answered, len(p.rows), gone)
	if names != "" {
		text += "; still there: " + names[2:]
	}
	return text
}
