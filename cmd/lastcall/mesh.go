package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/mesh"
)

// meshFlags are those of wait --envoy.
type meshFlags struct {
	envoy           string
	pilotAgent      uint16
	noApp           bool
	failHealthcheck bool
	leaveOut        []uint
}

func (f *meshFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.envoy, "envoy", "", "`address` of the admin API of the Envoy in this pod: host:port or unix:PATH. With --ports, those are watched if it cannot be used")
	flags.Uint16Var(&f.pilotAgent, "pilot-agent", 0, "status `port` of Istio's agent, such as 15020: begin with POST /drain, after which the agent ends at once at its SIGTERM")
	flags.UintSliceVar(&f.leaveOut, "ignore-port", nil,
		"`port` of an Envoy listener whose connections do not hold the drain; may be repeated")
	f.registerSidecar(flags)
}

// registerSidecar registers the flags that only the hook of Envoy's own container has.
func (f *meshFlags) registerSidecar(flags *pflag.FlagSet) {
	flags.BoolVar(&f.noApp, "no-app", false, "with --sidecar: the pod has no app, as a gateway's")
	flags.BoolVar(&f.failHealthcheck, "healthcheck-fail", false,
		"with --sidecar: make Envoy fail its health checks when the drain begins")
}

// wait runs the hook next to an Envoy, and calls report before Envoy is ended: the container may end with it.
func (f *meshFlags) wait(ctx context.Context, p *portsFlags, config drain.Config, sidecar bool, log *slog.Logger,
	report func(drain.Report) error) (drain.Report, error) {
	o := mesh.Options{Admin: f.envoy, PilotAgent: f.pilotAgent, Sidecar: sidecar, NoApp: f.noApp,
		FailHealthcheck: f.failHealthcheck, Stay: hold, Log: log}
	var err error
	if o.LeaveOut, err = ports("ignore-port", f.leaveOut); err != nil {
		return drain.Report{}, err
	}
	if o.Fallback, o.App, err = p.options(config, log); err != nil {
		return drain.Report{}, err
	}
	if o.With, err = p.until.plane(log); err != nil {
		return drain.Report{}, err
	}
	h, err := mesh.New(config, o)
	if err != nil {
		return drain.Report{}, usage(fmt.Errorf("--envoy: %w", err))
	}
	r, err := h.Wait(ctx)
	if err != nil {
		return r, err
	}
	err = report(r)
	if r.Verdict != drain.Quit { // stopped by a signal: Envoy remains
		h.End(ctx)
	}
	return r, err
}
