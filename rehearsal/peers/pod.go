package peers

import (
	"context"
	"path/filepath"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// pod is an Envoy and the program that ends it.
type pod struct {
	address string // where clients connect
	port    int    // of it
	members []node.Member
	agent   *parent // a model; nil without one

	report func() (*strategy.Report, error) // lastcall's; nil without it
}

// startPod starts a peer's pod and the app. Their logs are in dir.
func startPod(ctx context.Context, t *strategy.Env, p Peer, dir string) (*pod, error) {
	if p.form == lastcallPod || p.form == originalPod {
		own, s := *t, strategy.Strategy{Name: p.Name, Sidecar: strategy.Lastcall, App: p.app}
		own.Grace, own.Proxy = p.grace, strategy.ProxyEnvoy
		if p.form == originalPod {
			own.Proxy, s.Sidecar, s.TerminationDrain = strategy.ProxyIstioAgent, p.original, istioTerminationDrain
		}
		raised, err := own.StartPod(ctx, s, dir)
		if err != nil {
			return nil, err
		}
		return &pod{
			address: raised.Address, port: raised.Arrival(strategy.ProxyEnvoy),
			members: raised.Members(), report: raised.Report,
		}, nil
	}
	app, err := t.StartPod(ctx, strategy.Strategy{Name: p.Name + "'s app", Sidecar: strategy.NoSidecar, App: p.app}, filepath.Join(dir, "app"))
	if err != nil {
		return nil, err
	}
	envoy, err := t.StartEnvoy(ctx, dir, app.Address, p.envoyArgs...)
	if err != nil {
		return nil, err
	}
	out := &pod{address: envoy.Address, port: envoy.Port}
	if p.form == lastcallManager {
		m, err := t.StartManager(ctx, dir, envoy, p.grace)
		if err != nil {
			return nil, err
		}
		out.report = m.Report
		out.members = []node.Member{{Container: envoy.Process, PreStop: m.Hook}, {Container: m.Process, PreStop: m.Hook}}
		return out, nil
	}
	out.compose(p, envoy.Process, adminAt(envoy.Admin), app.Members())
	return out, nil
}

// compose returns the containers of a model.
func (o *pod) compose(p Peer, envoy node.Container, a admin, app []node.Member) {
	if p.form == managed {
		h := p.manager()
		o.members = []node.Member{
			{Container: envoy, PreStop: node.Func(func(ctx context.Context) error { h.envoy(ctx); return nil })},
			{Container: newAttendant(), PreStop: node.Func(func(ctx context.Context) error { h.manager(ctx, a); return nil })},
		}
		return
	}
	o.agent = &parent{envoy: envoy, admin: a, atTerm: p.atTerm}
	m := node.Member{Container: o.agent, Native: p.form == nativeSidecar}
	if p.preStop != nil {
		m.PreStop = node.Func(func(ctx context.Context) error { p.preStop(ctx, a); return nil })
	}
	o.members = []node.Member{m}
	if p.form.hasApp() {
		o.members = append(o.members, app...)
	}
}

// settle waits for the model's goroutines.
func (o *pod) settle() {
	if o.agent != nil {
		o.agent.running.Wait()
	}
}
