package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/mesh"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

const waitHelp = `Begin the drain, and return when no inbound request is left.

Made for the app's preStop hook: the kubelet sends the app its SIGTERM only after the hook, so the app serves as before
until then. The command returns no later than the last call, in time for the app to end within the grace period. If the
agent does not answer, it fails when the grace period less the last-call margin has passed: by
TERMINATION_GRACE_PERIOD_SECONDS (30), or by the agent's own value once that has received the request.

The kubelet runs the hook also when it restarts only the app's container. If the agent runs with --sidecar native or
classic, the hook then returns within a second: no client is refused, and new connections wait for the container. A
native sidecar needs a preStop hook of its own for this: lastcall wait --sidecar. For a classic sidecar with captured
traffic the command leaves a process (lastcall present) that ends with this container, so that the sidecar knows how
long the app needs its outbound connections.

With --ports there is neither agent nor proxy: the kernel's socket table shows the activity at the app's own ports. The
command waits for clients that have sent a request and have no response yet, and not for idle keep-alive connections. It
returns after the minimum drain, and after the quiet time without a new connection; and no later than 5 s before the end
of TERMINATION_GRACE_PERIOD_SECONDS (30), or after --timeout. For HTTP/2, gRPC, WebSocket and TLS the kernel does not
show whether a request is in flight: append the protocol to the port, as in 9090/grpc, and the command waits until these
connections are closed. Otherwise it assumes HTTP/1.1: connections that stay open after a response count as idle, and
the report lists them as assumed. A port without a listener is assumed too, with a warning. With --app-probes the
command recognises a restart of the container alone: if the app fails its liveness probe, it returns at once.

An app that finishes its requests at SIGTERM (--app finishes) needs the command only for the minimum drain and the quiet
time: it then returns although connections are open.

Next to linkerd's proxy, --linkerd reads its counters: while they show no request in flight at a port, its connections
of HTTP/1.1, HTTP/2 and gRPC are idle for certain. All clients of the port must come through the proxy.
--linkerd-shutdown, in addition, shuts the proxy down when the quiet time has passed, for clients outside the mesh that
keep their connections: the proxy must allow it (annotation config.linkerd.io/proxy-admin-shutdown: enabled), and from
then on the app's new outbound connections are refused.

With --envoy the command attaches to the Envoy that already runs in the pod, such as Istio's. Envoy's counters and the
kernel show which connections are busy; idle ones do not hold it. In an app's hook it only watches, because the kubelet
also runs the hook when it restarts that container alone, which --app-probes recognises here, too. As the hook of
Envoy's own container (--sidecar) it drains Envoy, waits, then waits until the app's containers have exited, and ends
Envoy by /quitquitquit, so that the access log is whole. If Envoy hides its counters, every open connection counts as
busy; if its admin API cannot be used, the ports of --ports are watched.

With --until the command waits for a worker that consumes a queue, until signals of its own report that it is idle:
exec:COMMAND (exit code 0 is idle, 1 to 125 busy; blanks separate the arguments, or it is a JSON list; no shell reads
it), http://HOST:PORT/PATH (2xx is idle, 503 busy; with Prefer: wait=10 the server may delay its answer),
metric:http://HOST:PORT/PATH NAME{LABEL="VALUE"} <= N (the sum of the series with these labels), file:PATH (idle when
there is one), !file:PATH (idle when there is none), unix:PATH (the worker keeps the connection open while it is busy).
All signals must be idle at the same time. A signal that fails counts as busy, and after --until-stale no longer; the
verdict is then assumed. --until alone has no minimum drain and no quiet time, because no client connects to a worker.
--ports and --envoy add theirs.

--after runs the app's own preStop hook when the wait has ended: the command or the request behind --. A hook that
stops the app must not run earlier. --before runs it first, for a worker that has to stop taking messages; without an
agent, the deadline and the minimum drain count from the start of the command. If it fails, the command exits with 1 at
the end, which the kubelet reports.

Exit code: 0 when drained, 1 when interrupted or without an agent, 2 for wrong flags; with --fail-on-busy 3 at the
deadline and 4 when open connections were assumed idle.`

func waitCommand() *cobra.Command {
	var f statusFlags
	var p waitFlags
	var sidecar bool
	var appPorts string
	var b own
	cmd := &cobra.Command{
		Use:   "wait [--until SIGNAL]… [--ports PORT,… | --envoy ADDRESS] [--after DURATION -- COMMAND…|URL]",
		Short: "Drain, and return when no request is left: the preStop hook",
		Long:  waitHelp,
		Example: `  lastcall wait
  lastcall wait --ports 8080,9090/grpc
  lastcall wait --ports 8080 --timeout 20s -o json
  lastcall wait --envoy 127.0.0.1:15000 --ports 8080
  lastcall wait --linkerd 4191 --ports 8080,9090/grpc
  lastcall wait --until file:/run/worker/idle
  lastcall wait --until 'metric:http://127.0.0.1:9090/metrics jobs_active <= 0'
  lastcall wait --after 28s -- nginx -s quit
  lastcall wait --envoy 127.0.0.1:15000 --pilot-agent 15020 --sidecar`,
		Args: b.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.timeout < 0 {
				return usagef("--timeout %v: must not be negative", f.timeout)
			}
			if given, err := p.isGiven(cmd.Flags(), sidecar); err != nil {
				return err
			} else if given {
				return b.around(cmd, func() error { return p.wait(cmd, f.timeout, sidecar, b.rest) })
			}
			path := "wait"
			switch {
			case sidecar:
				path = "wait?of=sidecar"
			case appPorts != "":
				if err := checkPorts(appPorts); err != nil {
					return usagef("--app-ports: %w", err)
				}
				path = "wait?ports=" + url.QueryEscape(appPorts)
			}
			return b.around(cmd, func() error { return f.wait(cmd, path) })
		},
	}
	cli.Group(cmd.Flags(), "With an agent; --timeout, --after, --before and --sidecar also without", func(flags *pflag.FlagSet) {
		f.register(flags, 0)
		flags.StringVar(&appPorts, "app-ports", "",
			"the `ports` of this container, separated by commas, or none, in a pod with several app containers: "+
				"its restart then does not affect connections to the others")
		b.register(flags)
		flags.BoolVar(&sidecar, "sidecar", false, "this is the preStop hook of the agent's own container, or with --envoy of Envoy's, so the pod ends")
	})
	cli.Group(cmd.Flags(), "Without an agent", p.register)
	cli.Common(cmd, "until", "ports", "envoy", "linkerd", "sidecar", "after", "timeout",
		"minimum-drain", "grace-period", "app-probes", "fail-on-busy")
	return cmd
}

// codeCut is the exit code of --fail-on-busy at the deadline.
const codeCut = 3

// codeAssumed is the exit code of --fail-on-busy when open connections were assumed idle.
const codeAssumed = 4

// isGiven reports whether --until, --ports or --envoy is given, and refuses flags that contradict it.
func (f *waitFlags) isGiven(flags *pflag.FlagSet, sidecar bool) (_ bool, err error) {
	given := ""
	for _, name := range []string{"until", "ports", "envoy"} {
		if flags.Changed(name) {
			given = name
		}
	}
	if given != "" {
		for _, name := range []string{"status-address", "status-port", "app-ports"} {
			if flags.Changed(name) {
				return false, usagef("use only one of --%s and --%s: with --%[2]s there is no agent", name, given)
			}
		}
	}
	needs := func(register func(*pflag.FlagSet), what string) {
		group := pflag.NewFlagSet("", pflag.ContinueOnError)
		register(group)
		group.VisitAll(func(flag *pflag.Flag) {
			if err == nil && flags.Changed(flag.Name) {
				err = usagef("--%s needs %s", flag.Name, what)
			}
		})
	}
	switch {
	case given == "":
		needs(new(meshFlags).register, "--envoy, such as --envoy 127.0.0.1:15000")
		needs(new(waitFlags).register, "--ports, such as --ports 8080")
	case given != "envoy" && sidecar:
		err = usagef("use only one of --sidecar and --%s: with --%[1]s there is no sidecar", given)
	case given != "envoy":
		needs(new(meshFlags).register, "--envoy, such as --envoy 127.0.0.1:15000")
	case sidecar && flags.Changed("app-probes"):
		err = usagef("use only one of --sidecar and --app-probes: it is for the hook of the app's container")
	case !sidecar:
		needs(new(meshFlags).registerSidecar, "--sidecar: it is for the hook of Envoy's own container")
	}
	if given != "" && !flags.Changed("until") {
		needs(new(untilFlags).register, "--until, such as --until file:/run/worker/idle")
	}
	return given != "", err
}

// wait runs the hook without an agent.
func (f *waitFlags) wait(cmd *cobra.Command, timeout time.Duration, sidecar bool,
	rest func(drain.Config) drain.Config) error {
	log, _ := cli.Log(cmd, f.logFormat, slog.LevelInfo)
	config, err := f.config(cmd.Flags(), timeout)
	if err != nil {
		return err
	}
	config = rest(config)
	ports, app, err := f.options(config, log)
	if err != nil {
		return err
	}
	worker, err := f.until.plane(log)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // the kubelet may have closed the hook's output
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	report := func(r drain.Report) error { return f.writeReport(cmd.OutOrStdout(), log, r) }
	var r drain.Report
	switch {
	case f.mesh.envoy != "":
		r, err = f.mesh.wait(ctx, config, mesh.Options{
			Options: envoy.Options{Log: log}, Sidecar: sidecar, Fallback: ports, With: worker, App: app,
		}, report)
	case len(ports.Ports) == 0 && (len(worker) == 0 || f.ports != nil):
		err = usagef("--ports: must have at least one port, such as --ports 8080")
	default:
		planes := worker
		if len(ports.Ports) > 0 {
			planes = append([]drain.DataPlane{sockets.New(ports)}, worker...)
		}
		if r, err = hook.Wait(ctx, drain.Join(planes...), config, app, log); err == nil {
			err = report(r)
		}
	}
	switch {
	case err != nil:
		return err
	case r.Verdict == drain.Quit:
		return errors.New("stopped by a signal before the app's connections were drained")
	case r.Verdict == drain.Assumed && f.failOnBusy:
		return cli.ExitCode(codeAssumed)
	case f.failOnBusy && !slices.Contains([]drain.Verdict{drain.Clean, drain.Assumed, drain.Restarted}, r.Verdict):
		return cli.ExitCode(codeCut)
	}
	return nil
}

// wait runs the hook next to an Envoy, and calls report before Envoy is ended: the container may end with it.
func (f *meshFlags) wait(ctx context.Context, config drain.Config, o mesh.Options,
	report func(drain.Report) error) (r drain.Report, err error) {
	o.Admin, o.PilotAgent, o.NoApp, o.FailHealthcheck = f.envoy, f.pilotAgent, f.noApp, f.failHealthcheck
	o.Stay = hold
	if o.LeaveOut, err = ports("ignore-port", f.leaveOut); err != nil {
		return r, err
	}
	h, err := mesh.New(config, o)
	if err != nil {
		return r, usagef("--envoy: %w", err)
	}
	if r, err = h.Wait(ctx); err != nil {
		return r, err
	}
	err = report(r)
	if r.Verdict != drain.Quit { // stopped by a signal: Envoy remains
		h.End(ctx)
	}
	return r, err
}

// config is the environment, overridden by the flags.
func (f *waitFlags) config(flags *pflag.FlagSet, timeout time.Duration) (drain.Config, error) {
	settings, err := f.settings.resolve()
	if err != nil {
		return drain.Config{}, usage(err)
	}
	leave := f.leave
	if settings.Margin.IsSet() && !flags.Changed("leave") {
		leave = settings.Margin.Value
	}
	c := hook.Until(settings.DrainHook(f.mesh.envoy == "" && f.ports == nil), leave)
	// By hand or under systemd the only grace period is one that is set.
	if limit, _ := c.Limit(); timeout > 0 && (!settings.GracePeriod.IsSet() || timeout < limit) {
		c = hook.Within(c, timeout)
	}
	if err := c.Validate(); err != nil {
		return c, usage(err)
	}
	return c, nil
}

// options are those of the sockets, and the probes of --app-probes.
func (f *waitFlags) options(config drain.Config, log *slog.Logger) (sockets.Options, *hook.App, error) {
	o := sockets.Options{Opaque: f.opaque, StreamPause: f.pause, IdleGrace: config.IdleGrace, Log: log,
		Linkerd: f.linkerd, LinkerdShutdown: f.shutdown}
	if f.shutdown && f.linkerd == 0 {
		return o, nil, usagef("--linkerd-shutdown needs --linkerd, such as --linkerd 4191")
	}
	if f.pause < 0 {
		return o, nil, usagef("--stream-pause %v: must not be negative", f.pause)
	}
	for _, text := range f.ports {
		port, protocol, err := parsePort(strings.TrimSpace(text))
		if err != nil {
			return o, nil, usagef("--ports: %w", err)
		}
		o.Ports = append(o.Ports, port)
		if meshconfig.IsMuxedPort(protocol) {
			o.MuxedPorts = append(o.MuxedPorts, port)
		}
		if meshconfig.IsOpaquePort(protocol) {
			o.OpaquePorts = append(o.OpaquePorts, port)
		}
	}
	from, list := "--ignore-from", f.ignoreFrom
	if list == nil {
		from, list = "$"+variableIgnoreFrom, strings.Split(os.Getenv(variableIgnoreFrom), ",")
	}
	for _, text := range list {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := parsePrefix(text)
		if err != nil {
			return o, nil, usagef("%s: %q: must be addresses or CIDRs, such as 10.0.0.7 and 10.0.0.0/24, separated by commas", from, text)
		}
		o.IgnoreFrom = append(o.IgnoreFrom, prefix)
	}
	app, err := hook.ParseApp(f.probes)
	if err != nil {
		return o, nil, usagef("--app-probes: %w", err)
	}
	if app != nil || len(f.until.signals) > 0 {
		o.IgnoreFrom = append(o.IgnoreFrom, netip.PrefixFrom(probe.Source, probe.Source.BitLen()))
	}
	return o, app, nil
}

// writeReport writes the report to the log, to --report and, with -o json, to stdout.
func (f *waitFlags) writeReport(stdout io.Writer, log *slog.Logger, r drain.Report) error {
	r.Publish(log, f.report)
	if f.output != cli.JSON {
		return nil
	}
	if err := json.NewEncoder(printable.JSONWriter(stdout)).Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
