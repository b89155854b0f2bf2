package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

// variableIgnoreFrom is the default of --ignore-from: Kubernetes expands $(NAME) in a container's command, but not in
// a hook's.
const variableIgnoreFrom = "LASTCALL_IGNORE_FROM"

// codeCut is the exit code of --fail-on-busy at the deadline.
const codeCut = 3

// codeAssumed is the exit code of --fail-on-busy when open connections were assumed idle.
const codeAssumed = 4

// portsFlags are those of wait --ports and wait --envoy, which need no agent.
type portsFlags struct {
	mesh       meshFlags
	until      untilFlags
	ports      []string
	ignoreFrom []string
	opaque     bool
	linkerd    uint16
	shutdown   bool // of linkerd's proxy
	settings   settingsFlags
	pause      time.Duration
	leave      time.Duration
	probes     string
	failOnBusy bool
	output     cli.Format
	report     string
	logFormat  string
}

func (f *portsFlags) register(flags *pflag.FlagSet) {
	f.mesh.register(flags)
	f.until.register(flags)
	flags.StringSliceVar(&f.ports, "ports", nil, "watch the connections of the app's ports, `PORT[/PROTOCOL],…`, such as 8080,9090/grpc. "+
		"Connections of http2, grpc, h2c, ws, https, tls, tcp and similar protocols count as busy while they are open; without a protocol, and with http, HTTP/1.1 is assumed")
	flags.StringSliceVar(&f.ignoreFrom, "ignore-from", nil,
		"clients that do not count, such as probes: `CIDR` or address, separated by commas (default $"+variableIgnoreFrom+")")
	flags.BoolVar(&f.opaque, "opaque", false, "count every open connection of every port as busy")
	flags.Uint16Var(&f.linkerd, "linkerd", 0, "admin `port` of linkerd's proxy in this pod, such as 4191: by its counters, connections of HTTP/1.1, HTTP/2 and gRPC are idle as soon as no request is in flight at their port")
	flags.BoolVar(&f.shutdown, "linkerd-shutdown", false,
		"with --linkerd: after the minimum drain and the quiet time, shut linkerd's proxy down. It asks clients to close their kept connections, finishes their requests, and refuses new connections, the app's own to others included")
	flags.DurationVar(&f.pause, "stream-pause", sockets.DefaultStreamPause,
		"how long a response that arrives in pieces may pause before it counts as complete")
	for _, s := range meshconfig.Table() {
		if slices.Contains([]string{"minimum-drain", "quiet-time", "idle-grace", "grace-period", "app"}, s.Flag) {
			f.settings.registerSetting(flags, s)
		}
	}
	flags.DurationVar(&f.leave, "leave", hook.DefaultLeave,
		"how much of the grace period to leave to the app after its SIGTERM, at most a quarter of it")
	flags.StringVar(&f.probes, "app-probes", "", "the container's livenessProbe and startupProbe as `JSON`: if the app fails them, only its "+
		`container restarts, and the command returns at once; such as {"liveness": {"httpGet": {"path": "/live", "port": 8080}}}`)
	flags.BoolVar(&f.failOnBusy, "fail-on-busy", false,
		"exit with code 3 when the deadline came first, with 4 when open connections were assumed idle")
	cli.OutputFlag(flags, &f.output, "`text|json`: text is a log line on standard error, json the report on standard output")
	flags.StringVar(&f.report, "report", "", "also write the report as JSON to `file`, such as /dev/termination-log")
	cli.LogFormatFlag(flags, &f.logFormat)
}

// isGiven reports whether --until, --ports or --envoy is given, and refuses flags that contradict it.
func (f *portsFlags) isGiven(flags *pflag.FlagSet, sidecar bool) (_ bool, err error) {
	given := ""
	for _, name := range []string{"until", "ports", "envoy"} {
		if flags.Changed(name) {
			given = name
		}
	}
	if given != "" {
		for _, name := range []string{"status-address", "status-port", "app-ports"} {
			if flags.Changed(name) {
				return false, usage(fmt.Errorf("use only one of --%s and --%s: with --%[2]s there is no agent", name, given))
			}
		}
	}
	needs := func(register func(*pflag.FlagSet), what string) {
		group := pflag.NewFlagSet("", pflag.ContinueOnError)
		register(group)
		group.VisitAll(func(flag *pflag.Flag) {
			if err == nil && flags.Changed(flag.Name) {
				err = usage(fmt.Errorf("--%s needs %s", flag.Name, what))
			}
		})
	}
	switch {
	case given == "":
		needs(new(meshFlags).register, "--envoy, such as --envoy 127.0.0.1:15000")
		needs(new(portsFlags).register, "--ports, such as --ports 8080")
	case given != "envoy" && sidecar:
		err = usage(fmt.Errorf("use only one of --sidecar and --%s: with --%[1]s there is no sidecar", given))
	case given != "envoy":
		needs(new(meshFlags).register, "--envoy, such as --envoy 127.0.0.1:15000")
	case sidecar && flags.Changed("app-probes"):
		err = usage(errors.New("use only one of --sidecar and --app-probes: it is for the hook of the app's container"))
	case !sidecar:
		needs(new(meshFlags).registerSidecar, "--sidecar: it is for the hook of Envoy's own container")
	}
	if given != "" && !flags.Changed("until") {
		needs(new(untilFlags).register, "--until, such as --until file:/run/worker/idle")
	}
	return given != "", err
}

func (f *portsFlags) wait(cmd *cobra.Command, timeout time.Duration, sidecar bool,
	rest func(drain.Config) drain.Config) error {
	log, _ := cli.Log(cmd, f.logFormat, slog.LevelInfo)
	config, err := f.config(cmd.Flags(), timeout)
	if err != nil {
		return err
	}
	config = rest(config)
	signal.Ignore(syscall.SIGPIPE) // the kubelet may have closed the hook's output
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	report := func(r drain.Report) error { return f.writeReport(cmd.OutOrStdout(), log, r) }
	var r drain.Report
	if f.mesh.envoy != "" {
		r, err = f.mesh.wait(ctx, f, config, sidecar, log, report)
	} else {
		r, err = f.watch(ctx, config, log, report)
	}
	if err != nil {
		return err
	}
	switch {
	case r.Verdict == drain.Quit:
		return errors.New("stopped by a signal before the app's connections were drained")
	case r.Verdict == drain.Assumed && f.failOnBusy:
		return cli.ExitCode(codeAssumed)
	case f.failOnBusy && !slices.Contains([]drain.Verdict{drain.Clean, drain.Assumed, drain.Restarted}, r.Verdict):
		return cli.ExitCode(codeCut)
	}
	return nil
}

// watch runs the hook of a pod without a proxy.
func (f *portsFlags) watch(ctx context.Context, config drain.Config, log *slog.Logger,
	report func(drain.Report) error) (drain.Report, error) {
	o, app, err := f.options(config, log)
	if err != nil {
		return drain.Report{}, err
	}
	plane, err := f.until.plane(log)
	switch {
	case err != nil:
		return drain.Report{}, err
	case len(o.Ports) == 0 && (plane == nil || f.ports != nil):
		return drain.Report{}, usage(errors.New("--ports: must have at least one port, such as --ports 8080"))
	case plane == nil:
		plane = sockets.New(o)
	case len(o.Ports) > 0:
		plane = drain.Join(sockets.New(o), plane)
	}
	r, err := hook.Wait(ctx, plane, config, app, log)
	if err != nil {
		return r, err
	}
	return r, report(r)
}

// options are those of the sockets, and the probes of --app-probes.
func (f *portsFlags) options(config drain.Config, log *slog.Logger) (sockets.Options, *hook.App, error) {
	o := sockets.Options{Opaque: f.opaque, StreamPause: f.pause, IdleGrace: config.IdleGrace, Log: log,
		Linkerd: f.linkerd, LinkerdShutdown: f.shutdown}
	if f.shutdown && f.linkerd == 0 {
		return o, nil, usage(errors.New("--linkerd-shutdown needs --linkerd, such as --linkerd 4191"))
	}
	if f.pause < 0 {
		return o, nil, usage(fmt.Errorf("--stream-pause %v: must not be negative", f.pause))
	}
	for _, text := range f.ports {
		port, protocol, err := parsePort(strings.TrimSpace(text))
		if err != nil {
			return o, nil, usage(fmt.Errorf("--ports: %w", err))
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
			return o, nil, usage(fmt.Errorf("%s: %q: must be addresses or CIDRs, such as 10.0.0.7 and 10.0.0.0/24, separated by commas", from, text))
		}
		o.IgnoreFrom = append(o.IgnoreFrom, prefix)
	}
	app, err := hook.ParseApp(f.probes)
	if err != nil {
		return o, nil, usage(fmt.Errorf("--app-probes: %w", err))
	}
	if app != nil || len(f.until.signals) > 0 {
		o.IgnoreFrom = append(o.IgnoreFrom, netip.PrefixFrom(probe.Source, probe.Source.BitLen()))
	}
	return o, app, nil
}

// parsePort reads PORT or PORT/PROTOCOL.
func parsePort(text string) (port uint16, protocol string, err error) {
	number, name, typed := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return 0, "", fmt.Errorf("%q must be a port from 1 to 65535, such as 8080 or 9090/grpc", text)
	}
	if protocol = meshconfig.PortProtocol(name); typed && protocol == "" {
		return 0, "", fmt.Errorf("%q: the protocol must be one of %s", text, strings.Join(meshconfig.PortProtocols(), ", "))
	}
	return uint16(n), protocol, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// config is the environment, overridden by the flags.
func (f *portsFlags) config(flags *pflag.FlagSet, timeout time.Duration) (drain.Config, error) {
	settings, err := f.settings.resolve()
	if err != nil {
		return drain.Config{}, usage(err)
	}
	c := settings.Drain()
	if f.mesh.envoy == "" && f.ports == nil { // no client has to notice the end of a worker
		if !settings.MinimumDrain.IsSet() {
			c.MinimumDrain = 0
		}
		if !settings.QuietTime.IsSet() {
			c.QuietTime = 0
		}
	}
	leave := f.leave
	if settings.Margin.IsSet() && !flags.Changed("leave") {
		leave = settings.Margin.Value
	}
	c = hook.Until(c, leave)
	// By hand or under systemd the only grace period is one that is set.
	if limit, _ := c.Limit(); timeout > 0 && (!settings.GracePeriod.IsSet() || timeout < limit) {
		c = hook.Within(c, timeout)
	}
	if err := c.Validate(); err != nil {
		return c, usage(err)
	}
	return c, nil
}

// writeReport writes the report to the log, to --report and, with -o json, to stdout.
func (f *portsFlags) writeReport(stdout io.Writer, log *slog.Logger, r drain.Report) error {
	r.Publish(log, f.report)
	if f.output != cli.JSON {
		return nil
	}
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
