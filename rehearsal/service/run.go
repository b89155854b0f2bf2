// Package service rehearses the end of one's own service: its command, its manifest's timers, its requests.
//
// For each strategy two pods run, an old one and its successor. Clients send load to the old pod as through a Service's
// ClusterIP; then the kubelet of package node deletes it, and each client learns of the successor after its own
// propagation delay. Every request is recorded: on which connection, when, and how it ended.
//
// A request counts as lost if its client did not get the response that it got from the undisturbed app: the connection
// was refused, reset or closed, the status or the body differs. A connection that stays with the old pod after its
// endpoint is gone is used again, as the kernel does it for a ClusterIP; a refused connection has no second try.
package service

import (
	"cmp"
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
	"github.com/lastcall-dev/lastcall/rehearsal/load"
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
	about := time.Duration(o.Repeat) * (o.Lasting + o.Pod.Grace + o.Propagation + around)
	progress := console.NewProgress(o.Progress, func() string {
		return fmt.Sprintf("%d s of about %s at most; strategies side by side: %d", int(time.Since(began).Seconds()),
			terminal.Seconds(about), len(strategies))
	})
	defer progress.End()
	env := &strategy.Env{Setup: o.Setup, Grace: o.Pod.Grace, MaxDelay: 10 * time.Second}
	env.Programs.App = o.Command
	env.Service = o.Pod.Service
	env.Service.IsTCP = slices.ContainsFunc(o.Requests, func(r load.Request) bool { return r.Protocol == traffic.TCP })
	dir, end, err := env.Begin(ctx, strategies)
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
		PropagationMS: [2]int64{0, o.Propagation.Milliseconds()},
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
		res.Notes = append(slices.Clone(res.Notes), "this machine permits no PID namespaces, "+
			"so the app is not PID 1 as in a container: "+
			"a stop signal that it does not handle is withheld, as the kernel does")
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
					"(add their ConfigMap or Secret to the input of -f, or set them in this environment)",
					errs[i], strings.Join(o.Pod.Missing, ", "))
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

// Limits of Options.
const (
	maxRepeat      = 100
	maxLasting     = 24 * time.Hour
	maxPropagation = 5 * time.Minute
)

// DefaultPropagation is how long the slowest client takes to learn of a change.
const DefaultPropagation = 4 * time.Second

// Options of a rehearsal.
type Options struct {
	Command        string        // command line of the app; {port} and the variable PORT are its port
	Pod            Pod           // from the manifest
	load.Options                 // for each strategy
	Propagation    time.Duration // the first client learns of a change at once, the slowest after this
	strategy.Setup               // by default as-is and lastcall; the first one decides whether the rehearsal passes
	Repeat         int           // runs, one after another; 0: 1

	Lasting time.Duration // pods are replaced one after another for so long; 0: one is replaced
	// The app is the built-in one, with three pods; half of the load goes through the built-in gateway, and clients
	// repeat refused requests elsewhere.
	IsBuiltIn bool
}

// check fills in defaults and returns the strategies, in the order of their names in the options.
func (o *Options) check() ([]strategy.Strategy, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if strings.TrimSpace(o.Command) == "" && !o.IsBuiltIn {
		bad("missing --app: the command that starts your service, " +
			"with {port} or the variable PORT as its port, as --app 'node server.js' or --app './web --listen :{port}'")
	}
	if err := o.Options.Check(); err != nil {
		errs = append(errs, err)
	}
	o.Pod.Grace = cmp.Or(o.Pod.Grace, strategy.DefaultGrace)
	if err := strategy.CheckGrace(o.Pod.Grace); err != nil {
		bad("--grace %w", err)
	}
	o.Repeat = cmp.Or(o.Repeat, 1)
	if o.Repeat < 1 || o.Repeat > maxRepeat {
		bad("--repeat is %d: must be 1 to %d", o.Repeat, maxRepeat)
	}
	if o.Lasting < 0 || o.Lasting > maxLasting {
		bad("--requests take %v: must be at most %v", o.Lasting, maxLasting)
	}
	if o.Propagation < 0 || o.Propagation > maxPropagation {
		bad("--propagation is %v: must be 0s to %v", o.Propagation, maxPropagation)
	}
	from := Strategies()
	switch {
	case o.IsBuiltIn:
		from = rolloutStrategies()
	case len(o.Strategies) == 0:
		o.Strategies = []string{AsIs, lastcallName}
	}
	all, err := strategy.Select(from, o.Strategies)
	if err != nil {
		bad("--strategy: %w", err)
	}
	if len(errs) > 0 {
		return nil, load.OptionError{Err: errors.Join(errs...)}
	}
	slices.SortFunc(all, func(a, b strategy.Strategy) int {
		return slices.Index(o.Strategies, a.Name) - slices.Index(o.Strategies, b.Name)
	})
	return all, nil
}

// Pod has a manifest's settings for the end of its pods.
type Pod struct {
	strategy.Service
	Workload string        // "Deployment shop/web"; empty: no manifest
	Grace    time.Duration // terminationGracePeriodSeconds
	Missing  []string      // variables whose values the manifest lacks
	Notes    []string      // settings of the manifest that the rehearsal leaves out
}

// AsIs is the strategy of the manifest itself.
const AsIs = "as-is"

// lastcallName is the strategy of lastcall's injection.
const lastcallName = "lastcall"

// Strategies returns the ways to stop the pods, the manifest's own first.
func Strategies() []strategy.Strategy {
	const joined = "; its hook joins the manifest's"
	sleep := func(d time.Duration) strategy.Strategy {
		words := "a preStop sleep of " + d.String() + " in place of the manifest's hook"
		return strategy.Strategy{Name: "sleep-" + d.String(), Sidecar: strategy.NoSidecar, Sleep: d, Words: words}
	}
	return []strategy.Strategy{
		{Name: AsIs, Sidecar: strategy.NoSidecar, Words: "the manifest's own hook and timers"},
		{Name: lastcallName, Sidecar: strategy.Lastcall, Words: "lastcall's sidecar" + joined},
		{Name: "lastcall-native", Sidecar: strategy.LastcallNative, Words: "lastcall's native sidecar" + joined},
		{Name: "lastcall-hook", Sidecar: strategy.NoSidecar, SocketWait: true,
			Words: "lastcall wait --ports as the preStop hook, without a sidecar"},
		sleep(5 * time.Second),
		sleep(15 * time.Second),
		{Name: "istio", Sidecar: strategy.Fixed,
			Words: "Istio's sidecar with its defaults, imitated by lastcall agent --compat istio"},
		{Name: "istio-exit-on-zero", Sidecar: strategy.ExitOnZero,
			Words: "Istio's sidecar with EXIT_ON_ZERO_ACTIVE_CONNECTIONS, imitated"},
		{Name: "istio-native", Sidecar: strategy.IstioNative, Words: "Istio's native sidecar, imitated"},
	}
}
