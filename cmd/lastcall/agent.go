package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/agent"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
	"github.com/lastcall-dev/lastcall/internal/sidecar/systemd"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

const agentHelp = `Carry the inbound traffic of a pod, and drain it when the pod stops.

Runs next to the app as a sidecar. At SIGTERM, or when the app's preStop hook (lastcall wait) requests it, it asks every
client to close its connection, serves the requests in flight and those that still arrive, and exits as soon as none is
left, always before the kubelet's SIGKILL. A second SIGTERM ends the remaining requests at once, unless it arrives
within a second of the first.

Exit code: 0 after every requested end, 1 when it could not start or the proxy failed, 2 for wrong flags or settings, 3
for a cut with --fail-on-cut.`

func agentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:     "agent --inbound LISTEN=APP …",
		Short:   "Run next to an app, as its sidecar",
		Long:    agentHelp,
		Example: "  lastcall agent --inbound :8000=127.0.0.1:8080",
		Args:    cli.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.runAgent(cmd) },
	}
	f.register(cmd.Flags(), f.registerAgent)
	cli.Common(cmd, "inbound", "capture", "sidecar", "minimum-drain", "grace-period", "app",
		"websocket", "access-log", "fail-on-cut", "proxy")
	cli.Environment(cmd, environment(cmd))
	return cmd
}

const runHelp = `Start an app, carry its inbound traffic, and drain it before the app stops.

At SIGTERM, SIGQUIT, --stop-signal, Ctrl-C or the end of its terminal, lastcall drains the traffic. Then it stops the
app with the signal that it received itself (SIGTERM after Ctrl-C and the end of the terminal; --app-stop-signal
overrides this). After Ctrl-C on a terminal new connections are not waited for. A second signal, a
second or more after the first, ends the remaining requests at once.

If APP does not handle that signal, as sh, or is a package manager, as npm, its whole process group gets the signal; and
so do the others of the group when APP has ended. lastcall waits for all of them (--app-stop-alone: only for APP).
A signal that none of them handles, and that --app-stop-signal does not name, is not sent before the last connection has
ended or, without --inbound, before the last call.

{port} in the app's arguments is the port of --inbound's APP, and so is the app's variable PORT. Port 0 picks a free
one. SIGHUP, where there is no terminal, makes lastcall read its certificates again.

/healthz/ready, lastcall ready and systemd (Type=notify, WatchdogSec) report ready when the app accepts connections on
the port of each --inbound. Without --inbound the app is a job: lastcall carries no connections to it.

Exit code: the app's own, except that an app which ends by the signal from lastcall (SIGTERM: 143) counts as 0 unless it
is a job; 2 for wrong flags or settings; 3 for a cut with --fail-on-cut.`

func runCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "run [--inbound LISTEN=APP …] [flags] -- APP [ARG…]",

		DisableFlagsInUseLine: true, // flags come before the app
		Short:                 "Run an app and drain its traffic: on a plain machine or in a container",
		Long:                  runHelp,
		Example:               "  lastcall run --inbound :8000=127.0.0.1:0 -- python3 -m http.server {port}",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("missing command: put it after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.runApp(cmd, args) },
	}
	f.register(cmd.Flags(), f.stop.registerRun)
	cli.Common(cmd, "inbound", "minimum-drain", "grace-period", "app",
		"websocket", "stop-signal", "app-stop-signal", "access-log", "fail-on-cut")
	cli.Environment(cmd, environment(cmd))
	return cmd
}

// runAgent is lastcall agent.
func (f *agentFlags) runAgent(cmd *cobra.Command) error {
	const containers = "app-containers"
	if text := os.Getenv(meshconfig.VariableAppContainers); text != "" && !cmd.Flags().Changed(containers) {
		if cmd.Flags().Set(containers, text) != nil {
			return usagef("%s %q: must be a whole number, 0 or more", meshconfig.VariableAppContainers, text)
		}
	}
	if f.copyTo != "" {
		if err := copySelf(f.copyTo); err != nil {
			return err
		}
	}
	o, closeOptions, err := f.options(cmd, false)
	if err != nil {
		return err
	}
	defer closeOptions()
	return f.run(o)
}

// runApp is lastcall run.
func (f *agentFlags) runApp(cmd *cobra.Command, app []string) error {
	o, closeOptions, err := f.options(cmd, true)
	if err != nil {
		return err
	}
	defer closeOptions()
	if len(o.Pipe.Inbound) == 0 { // no client connects, so the drain waits for none
		o.Log.Info("no --inbound: running the app as a job; no connections to it are carried or drained")
		o.Settings.MinimumDrain.Value, o.Settings.QuietTime.Value = 0, 0
	}
	o.App.Command = appCommand(app, o.Pipe.Inbound, systemd.AppEnviron(o.Settings.Environ(os.Environ())))
	o.Notifier = systemd.FromEnvironment(o.Log)
	return f.run(o)
}

// run runs an agent with the signals that the flags choose.
func (f *agentFlags) run(o agent.Options) error {
	listen, appStop, err := f.stop.parse()
	if err != nil {
		return err
	}
	listen.Log, listen.Requests = o.Log, new(drain.Requests)
	received, stop := signals.Receive(listen)
	defer stop()
	o.Stop = agent.Stop{Requests: listen.Requests, First: received.First, Reload: received.Reload}
	o.App.StopSignal, o.App.SignalChildOnly = appStop, f.stop.alone
	code, err := agent.Run(context.Background(), o)
	if err == nil && code != 0 {
		return cli.ExitCode(code)
	}
	return err
}

// options are those that lastcall agent and lastcall run have in common.
func (f *agentFlags) options(cmd *cobra.Command, isRun bool) (o agent.Options, closeOptions func(), err error) {
	log, written := cli.Log(cmd, f.logFormat, slog.LevelInfo)
	inbound, err := f.listeners(!f.envoy.isEnvoy() && !isRun)
	if err != nil {
		return o, nil, err
	}
	settings, err := f.settings.apply(log)
	if err != nil {
		return o, nil, err
	}
	o = f.o
	o.Settings, o.Log, o.Terminal = settings, log, terminal.On(written, os.Stderr)
	o.Pipe.Inbound, o.Pipe.Endings, o.Outbound = inbound, endings(settings), f.capture.out
	o.Status.HookToken = os.Getenv("LASTCALL_HOOK_TOKEN")
	o.Status.SidecarToken = os.Getenv(meshconfig.VariableSidecarToken)
	o.Status.Metrics = []prometheus.Collector{written.Metric("own")}
	if o.Pipe.Limits, err = f.limits.limits(); err != nil {
		return o, nil, err
	}
	if memory := o.Pipe.Limits.Memory; memory > 0 && os.Getenv("GOMEMLIMIT") == "" {
		// The garbage collector works harder before the container's limit is reached. The rest is for the kernel's part
		// of connections and for the program itself.
		debug.SetMemoryLimit(memory / 8 * 5)
	}
	if o.Status.Probes, err = probe.ParseAll(os.Getenv(meshconfig.VariableProbes)); err != nil {
		return o, nil, usage(err)
	}
	if o.Pipe.H2, err = f.h2.limits(); err != nil {
		return o, nil, err
	}
	if f.envoy.isEnvoy() {
		closeOptions, err = f.addEnvoy(&o, cmd.OutOrStdout(), written)
		return o, closeOptions, err
	}
	o.Admin = f.admin(settings, isRun)
	o.Pipe.AccessLog, err = f.openAccessLog(cmd.OutOrStdout())
	return o, func() {}, err
}

// openAccessLog opens the pipe's; nil: none.
func (f *agentFlags) openAccessLog(to io.Writer) (*accesslog.Log, error) {
	switch f.accessLog {
	case "off", "":
		return nil, nil
	case "-":
	default:
		file, err := logs.OpenFile(f.accessLog)
		if err != nil {
			return nil, fmt.Errorf("open --access-log, which must be a file, - or off: %w", err)
		}
		to = file
	}
	return accesslog.New(to, accesslog.Format(f.accessLogForm)), nil
}

// addEnvoy makes an Envoy the data plane. What Envoy logs goes through lastcall: a log reader that stalls must not stop
// it.
func (f *agentFlags) addEnvoy(o *agent.Options, stdout io.Writer, written *logs.Writer) (closeLog func(), err error) {
	o.Envoy, err = f.envoy.options(o.Settings, o.Pipe.Inbound, f.adminAddress, f.adminAddress != "", f.accessLog, o.Log)
	if err != nil {
		return nil, err
	}
	accessLog := logs.New(stdout, logs.DefaultBound)
	o.Status.Metrics = append(o.Status.Metrics, accessLog.Metric("envoy"))
	o.Envoy.Stdout, o.Envoy.Stderr = logs.NewLines(accessLog), logs.NewLines(written)
	return accessLog.Close, nil
}

// admin is where the pipe serves Envoy's admin API. An address that cannot be used stops the start only if
// --admin-address names it.
func (f *agentFlags) admin(s *meshconfig.Settings, isRun bool) agent.Admin {
	address := f.adminAddress
	if address == "off" || address == "" && isRun {
		return agent.Admin{}
	}
	address = cmp.Or(address, "127.0.0.1")
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(s.AdminPort.Value))
	}
	return agent.Admin{Address: address, Optional: f.adminAddress == ""}
}

func (f *agentFlags) listeners(needed bool) ([]pipe.Inbound, error) {
	captured, err := f.capture.inbound()
	if err != nil {
		return nil, err
	}
	if needed && len(f.inbound) == 0 && captured == nil {
		return nil, usagef("missing --inbound: give at least one LISTEN=APP, for example --inbound :8000=127.0.0.1:8080")
	}
	out := captured
	for _, s := range f.inbound {
		in, err := parseInbound(s)
		if err != nil {
			return nil, usage(err)
		}
		if in.App, err = freePort(in.App); err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}

// appCommand is the app with {port} and PORT filled in.
func appCommand(app []string, inbound []pipe.Inbound, env []string) *exec.Cmd {
	port := ""
	if len(inbound) > 0 {
		_, port, _ = net.SplitHostPort(inbound[0].App)
	}
	args := make([]string, len(app))
	for i, arg := range app {
		args[i] = strings.ReplaceAll(arg, "{port}", port)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	if port != "" {
		cmd.Env = append(env, "PORT="+port)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}
