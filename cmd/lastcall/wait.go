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
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/mesh"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

const waitHelp = `Begin the drain, and return when no inbound request is left.

Made for the app's preStop hook: the kubelet sends the app its SIGTERM only after the hook, so the app serves as before
until then. The command returns no later than the last call, in time for the app to end within the grace period. If the
agent does not answer, it fails when the grace period less the last-call margin has passed: by
TERMINATION_GRACE_PERIOD_SECONDS (30), or by the agent's own value once that has received the request.

If the kubelet restarts only the app's container, and the agent runs with --sidecar native or classic, the command
returns within a second: no client is refused, and new connections wait for the container. A native sidecar needs a hook
of its own for this: lastcall wait --sidecar. For a classic sidecar with captured traffic the command leaves a process
(lastcall present) that ends with the container: until then the sidecar keeps the app's outbound connections.

--ports needs neither agent nor proxy: the kernel's table of sockets shows which clients wait for a response. The
command returns after the minimum drain and the quiet time, and no later than 5 s before the end of the grace period, or
after --timeout. Connections of HTTP/1.1 that stay open after a response count as idle, and the report lists them as
assumed; for other protocols append them to the port (9090/grpc): the kernel does not show their requests, so they count
until they are closed. An app that finishes its requests at SIGTERM (--app finishes) needs no more than the minimum
drain and the quiet time. With --app-probes the command recognises a restart of the container alone, and returns at
once. --linkerd reads the counters of linkerd's proxy: if all clients of a port come through it, connections are idle
for certain.

--envoy attaches to the Envoy that already runs in the pod, such as Istio's. In an app's hook it only watches. As the
hook of Envoy's own container (--sidecar) it drains Envoy, waits until the app's containers have exited, and ends Envoy
by /quitquitquit, so that the access log is whole. If Envoy hides its counters, every open connection counts as busy.

--until waits for a worker that consumes a queue, until its own signals report that it is idle: exec:COMMAND (exit code
0 is idle, 1 to 125 busy; no shell reads it), http://HOST:PORT/PATH (2xx is idle, 503 busy),
metric:http://HOST:PORT/PATH NAME{LABEL="VALUE"} <= N (the sum of the series), file:PATH (idle when there is one),
!file:PATH (when there is none), unix:PATH (the worker keeps the connection open while it is busy). A signal that fails
counts as busy, and after --until-stale no longer. No client connects to a worker, so --until alone has no minimum drain
and no quiet time.

--after and --before run the app's own preStop hook, the command or the request behind --: one that stops the app must
run after the wait, one that makes a worker stop taking messages before it. If it fails, the command exits with 1.

Exit code: 0 when drained, 1 when interrupted or without an agent, 2 for wrong flags; with --fail-on-busy 3 at the
deadline and 4 when open connections were assumed idle.`

func waitCommand() *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use:   "wait [--until SIGNAL]… [--ports PORT,… | --envoy ADDRESS] [--after DURATION -- COMMAND…|URL]",
		Short: "Drain, and return when no request is left: the preStop hook",
		Long:  waitHelp,
		Example: `  lastcall wait                                      # with an agent
  lastcall wait --ports 8080,9090/grpc               # without agent and proxy
  lastcall wait --envoy 127.0.0.1:15000 --ports 8080 # next to Istio's Envoy
  lastcall wait --linkerd 4191 --ports 8080          # next to linkerd's proxy
  lastcall wait --until file:/run/worker/idle        # for a queue's worker
  lastcall wait --ports 8080 --after 20s -- /stop    # then the app's own hook
  lastcall wait --ports 8080 --timeout 20s -o json   # by hand, or in a script`,
		Args: f.own.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			watches := watched(cmd.Flags())
			if err := f.check(cmd.Flags(), watches); err != nil {
				return err
			}
			wait := f.wait
			if watches == "" {
				wait = f.waitForAgent
			}
			return f.own.around(cmd, func() error { return wait(cmd) })
		},
	}
	f.register(cmd.Flags())
	cli.Common(cmd, "until", "ports", "envoy", "linkerd", "sidecar", "after", "timeout",
		"minimum-drain", "grace-period", "app-probes", "fail-on-busy")
	return cmd
}

// watched is the flag that names what a hook without an agent watches: envoy, ports or until; it is empty with an
// agent.
func watched(flags *pflag.FlagSet) string {
	for _, name := range []string{"envoy", "ports", "until"} {
		if flags.Changed(name) {
			return name
		}
	}
	return ""
}

// codeCut is the exit code of --fail-on-busy at the deadline.
const codeCut = 3

// codeAssumed is the exit code of --fail-on-busy when open connections were assumed idle.
const codeAssumed = 4

// waitForAgent is the hook of a pod with an agent.
func (f *waitFlags) waitForAgent(cmd *cobra.Command) error {
	path := "wait"
	switch {
	case f.plan.Sidecar:
		path = "wait?of=sidecar"
	case f.appPorts != "":
		path = "wait?ports=" + url.QueryEscape(f.appPorts)
	}
	return f.agent.wait(cmd, path)
}

// plan is a hook without an agent.
type plan struct {
	mesh.Options // what it watches: --ports is Fallback, --until is With; --envoy has the rest
	config       drain.Config
}

// wait runs the hook without an agent.
func (f *waitFlags) wait(cmd *cobra.Command) error {
	p := &f.plan
	p.Log, _ = cli.Log(cmd, f.logFormat, slog.LevelInfo)
	p.Stay = hold
	var err error
	if p.LeaveOut, err = ports("ignore-port", f.leaveOut); err != nil {
		return err
	}
	for _, fill := range []func() error{f.timers, f.watch, f.worker} {
		if err := fill(); err != nil {
			return err
		}
	}
	signal.Ignore(syscall.SIGPIPE) // the kubelet may have closed the hook's output
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	r, err := p.run(ctx, func(r drain.Report) error { return f.writeReport(cmd.OutOrStdout(), p.Log, r) })
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

// run calls report before Envoy is ended: the container may end with it.
func (p *plan) run(ctx context.Context, report func(drain.Report) error) (r drain.Report, err error) {
	if p.Admin == "" {
		planes := p.With
		if len(p.Fallback.Ports) > 0 {
			planes = append([]drain.DataPlane{sockets.New(p.Fallback)}, planes...)
		}
		if r, err = hook.Wait(ctx, drain.Join(planes...), p.config, p.App, p.Log); err == nil {
			err = report(r)
		}
		return r, err
	}
	h, err := mesh.New(p.config, p.Options)
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

// timers are those of the environment, overridden by the flags, less the time that the app's own hook has taken.
func (f *waitFlags) timers() error {
	p := &f.plan
	settings, err := f.settings.resolve()
	if err != nil {
		return usage(err)
	}
	p.config = hook.Config(settings, p.Admin == "" && f.ports == nil, f.agent.timeout)
	if err := p.config.Validate(); err != nil {
		return usage(err)
	}
	if f.own.took > 0 {
		p.config = hook.Rest(p.config, f.own.took)
	}
	return nil
}

// watch sets what is read of the sockets, and the probes of --app-probes.
func (f *waitFlags) watch() (err error) {
	p := &f.plan
	o := &p.Fallback
	o.IdleGrace, o.Log = p.config.IdleGrace, p.Log
	switch {
	case o.LinkerdShutdown && o.Linkerd == 0:
		return usagef("--linkerd-shutdown needs --linkerd, such as --linkerd 4191")
	case o.StreamPause < 0:
		return usagef("--stream-pause %v: must not be negative", o.StreamPause)
	case p.Admin == "" && len(f.ports) == 0 && (f.ports != nil || len(f.signals) == 0):
		return usagef("--ports: must have at least one port, such as --ports 8080")
	}
	for _, text := range f.ports {
		port, protocol, err := meshconfig.ParsePort(strings.TrimSpace(text))
		if err != nil {
			return usagef("--ports: %w", err)
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
		prefix, err := netip.ParsePrefix(text)
		if address, isAddress := netip.ParseAddr(text); isAddress == nil {
			prefix, err = address.Unmap().Prefix(address.Unmap().BitLen())
		}
		if err != nil {
			return usagef("%s: %q: must be addresses or CIDRs, such as 10.0.0.7 and 10.0.0.0/24, separated by commas", from, text)
		}
		o.IgnoreFrom = append(o.IgnoreFrom, prefix)
	}
	if p.App, err = hook.ParseApp(f.probes); err != nil {
		return usagef("--app-probes: %w", err)
	}
	if p.App != nil || len(f.signals) > 0 {
		o.IgnoreFrom = append(o.IgnoreFrom, netip.PrefixFrom(probe.Source, probe.Source.BitLen()))
	}
	return nil
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

// around runs what is to run before or after wait, and wait, whatever has become of the first of them. The failure of
// either is the result, which the kubelet reports as an Event.
func (b *own) around(cmd *cobra.Command, wait func() error) error {
	began := time.Now()
	switch {
	case len(b.args) == 0:
		return wait()
	case b.after > 0:
		err := wait()
		return errors.Join(err, b.run(cmd, max(b.after-time.Since(began), timers.LeastAfter)))
	}
	err := b.run(cmd, b.before)
	b.took = time.Since(began)
	return errors.Join(err, wait())
}
