package service

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/rehearsal/gateway"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

const (
	callers = 4 // clients, each with its own propagation delay

	after = time.Second // load after the last client has learned of the last pod and all old ones are gone
)

// trial is one strategy's pods and clients.
type trial struct {
	env      *strategy.Env
	strategy strategy.Strategy
	options  *Options
	dir      string

	pods    []*strategy.Pod // the oldest first; those that have ended, too
	gateway *gateway.Gateway
	load    *load.Load
	views   []view // of the gateway, and of the clients that connect to pods

	mu   sync.Mutex // guards done
	done outcome.Rollout
}

// view replaces an address of a client.
type view func(ctx context.Context, old, next string)

// startPod starts one more pod.
func (t *trial) startPod(ctx context.Context) (*strategy.Pod, error) {
	p, err := t.env.StartPod(ctx, t.strategy, filepath.Join(t.dir, "pod-"+strconv.Itoa(len(t.pods)+1)))
	if err == nil {
		t.pods = append(t.pods, p)
	}
	return p, err
}

// start starts the pods and one that replaces the first, the gateway and the clients.
func (t *trial) start(ctx context.Context) error {
	var addresses []string
	replicas := 1
	if t.options.IsBuiltIn {
		replicas = 3
	}
	for i := range replicas + 1 {
		p, err := t.startPod(ctx)
		if err != nil {
			return err
		}
		if i < replicas {
			addresses = append(addresses, p.Address)
		}
	}
	t.load = &load.Load{Requests: t.options.Requests, Rate: t.options.Rate, Descriptors: t.options.Descriptors}
	if t.options.IsBuiltIn {
		if err := t.startGateway(addresses); err != nil {
			return err
		}
	}
	for i := range callers {
		var view atomic.Pointer[[]string]
		delay := t.options.Propagation * time.Duration(i) / (callers - 1)
		change := func(list []string) { view.Store(&list) }
		t.views = append(t.views, newView(func() time.Duration { return delay }, addresses, change))
		t.load.Clients = append(t.load.Clients, t.client(func() []string { return *view.Load() }))
	}
	return nil
}

func (t *trial) client(targets func() []string) *traffic.Client {
	return &traffic.Client{ClusterIP: !t.options.IsBuiltIn, Timeout: t.options.Timeout, Targets: targets}
}

// startGateway starts a gateway, and as many clients that use it as use the pods.
func (t *trial) startGateway(addresses []string) (err error) {
	if t.gateway, err = gateway.Start(t.dir, addresses); err != nil {
		return fmt.Errorf("%s: %w", t.strategy.Name, err)
	}
	late := func() time.Duration { return rand.N(t.options.Propagation + 1) }
	t.views = append(t.views, newView(late, addresses, t.gateway.SetEndpoints))
	for range callers {
		t.load.Clients = append(t.load.Clients, t.client(func() []string { return []string{t.gateway.Address} }))
	}
	t.done.Gateway = t.gateway.Address
	return nil
}

// run sends the load, replaces pods, and returns when each request has ended.
func (t *trial) run(ctx context.Context) error {
	defer t.load.Close()
	fresh := t.pods[len(t.pods)-1]
	client := t.client(func() []string { return []string{fresh.Address} })
	defer client.Close()
	if err := t.load.Measure(ctx, client); err != nil {
		return fmt.Errorf("%s: %w", t.strategy.Name, err)
	}
	return t.load.Around(ctx, after, func() error { return t.replace(ctx, fresh) })
}

// replace replaces pods one after another, as a Deployment with maxSurge 1 and maxUnavailable 0 does, for the rollout's
// time, but at least one. It returns when the old pods are gone, and all clients have learned of it.
func (t *trial) replace(ctx context.Context, fresh *strategy.Pod) (err error) {
	t.done.Began, t.done.Propagation = time.Now(), t.options.Propagation
	var ending, changing sync.WaitGroup
	defer ending.Wait()
	for replaced := 0; ; replaced++ {
		old := t.pods[replaced]
		for _, v := range t.views {
			changing.Go(func() { v(ctx, old.Address, fresh.Address) })
		}
		ending.Go(func() { t.end(ctx, old, replaced) })
		changing.Wait()
		if time.Since(t.done.Began) >= t.options.Lasting {
			return context.Cause(ctx)
		}
		if fresh, err = t.startPod(ctx); err != nil {
			return err
		}
	}
}

// end ends a pod, and records how.
func (t *trial) end(ctx context.Context, p *strategy.Pod, number int) {
	end := p.Terminate(ctx)
	e := outcome.Ending{
		Address: p.Address, EndedBy: endedBy(end),
		Deleted: end.Began, HookEnded: end.App.HookEnded, Term: end.App.Terminated,
		Killed: end.App.Killed, Gone: end.Gone(), Cause: t.cause(p.App, end),
	}
	if e.Killed.IsZero() {
		e.Killed = end.Sidecar.Killed
	}
	if end.App.HookError != nil {
		e.HookError = end.App.HookError.Error()
	}
	if t.options.Lasting > 0 {
		e.Name = "pod-" + strconv.Itoa(number+1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done.Old = append(t.done.Old, e)
	slices.SortFunc(t.done.Old, func(a, b outcome.Ending) int { return a.Deleted.Compare(b.Deleted) })
}

// stop kills the pods that have not ended, and the gateway.
func (t *trial) stop() {
	for _, p := range t.pods {
		for _, m := range p.Members() {
			_ = m.Container.Kill()
			<-m.Container.Done()
		}
	}
	t.gateway.Stop()
}

// endedBy is how a pod's app ended.
func endedBy(e strategy.End) string {
	switch {
	case !e.App.Killed.IsZero():
		return "SIGKILL"
	case e.App.Terminated.IsZero():
		return "itself, " + e.AppExit
	}
	return e.AppExit
}

// cause is a property of the app that shows at its end whether or not requests were lost; empty: none.
func (t *trial) cause(app *node.Process, e strategy.End) string {
	if app.Init() == node.Imitated && e.AppExit == "SIGTERM" && e.App.Killed.IsZero() {
		return "SIGTERM ended the app, which is not PID 1 here: as PID 1 of a container Node, " +
			"and each program whose only handler sends the signal again, runs until SIGKILL"
	}
	if program := app.Ignored(); program != "" {
		return node.IgnoredCause(program, cmp.Or(t.options.Pod.StopSignal, unix.SIGTERM))
	}
	return ""
}

// Rollout is options for pods of the built-in app that are replaced one after another under a load like a service's:
// mostly fast requests, some slow ones, some with a body; 0.25 s on average. It lacks Lasting.
func Rollout() Options {
	o := Options{IsBuiltIn: true, Propagation: DefaultPropagation, Options: load.Options{Rate: 200}}
	for _, text := range []string{"40 GET /get", "14 GET /bytes/2048", "8 GET /bytes/65536", "8 GET /stream/20",
		"5 POST /anything -d 'the body of a form'", "7 GET /delay/0.1", "7 GET /delay/0.5", "5 GET /delay/1",
		"2 GET /drip?duration=2&numbytes=20&delay=0", "2 GET /delay/3", "2 GET /delay/5"} {
		request, _ := load.ParseRequest(text) // it is valid
		o.Requests = append(o.Requests, request)
	}
	return o
}

// rolloutStrategies are those of a rollout of the built-in app.
func rolloutStrategies() []strategy.Strategy {
	return []strategy.Strategy{
		{Name: lastcallName, Sidecar: strategy.Lastcall, App: strategy.Exits,
			Words: "lastcall wait as preStop; the app exits at SIGTERM"},
		{Name: "istio-default", Sidecar: strategy.Fixed, App: strategy.ClosesListener,
			Words: "terminationDrainDuration of 5 s; the app closes its listener at SIGTERM, then finishes"},
		{Name: "istio-exit-on-zero", Sidecar: strategy.ExitOnZero, App: strategy.ClosesListener,
			Words: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS; the app closes its listener at SIGTERM, then finishes"},
		{Name: "prestop-sleep-5", Sidecar: strategy.Fixed, Sleep: 5 * time.Second, App: strategy.ClosesListener,
			Words: "Istio's default after a preStop sleep of 5 s on app and proxy; the app finishes"},
		{Name: "none", Sidecar: strategy.NoSidecar, App: strategy.Exits,
			Words: "no sidecar and no hook; the app exits at SIGTERM"},
	}
}

// newView makes a client's view of the pods' addresses: it publishes the list at once, and again when a delay has
// passed after each replacement of an address, unless ctx ends before.
func newView(delay func() time.Duration, list []string, publish func(addresses []string)) view {
	publish(list)
	return func(ctx context.Context, old, next string) {
		if poll.Pause(ctx, delay()) == nil {
			others := slices.DeleteFunc(slices.Clone(list), func(a string) bool { return a == old })
			list = append(others, next)
			publish(list)
		}
	}
}
