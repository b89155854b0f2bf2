package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/agent"
	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/internal/hotrestart"
	"github.com/lastcall-dev/lastcall/internal/logs"
	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/pipe"
	"github.com/lastcall-dev/lastcall/internal/signals"
)

// agentFlags are common to agent and run.
type agentFlags struct {
	inbound        []string
	settings       settingsFlags
	statusAddress  string
	terminationLog string
	logFormat      string
	accessLog      string
	accessLogForm  string
	failOnCut      bool
	leanScrape     bool
	exitWithApp    bool
	sidecar        string // of agent
	appContainers  int    // of agent
	adminAddress   string
	envoy          envoyFlags
	capture        captureFlags
	limits         limitsFlags
	h2             h2Flags
	endings        endingsFlags
	stop           stopFlags
	succession     successionFlags // of run
}

func (f *agentFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.inbound, "inbound", nil, "inbound listener and the app's address, `LISTEN=APP[,OPTION…]`, for example :8000=127.0.0.1:8080,protocol=http; may be repeated. Options: protocol=auto|http|tcp, name=NAME, max-connections=N; to end TLS here tls-cert=FILE,tls-key=FILE, and with them tls-client-ca=FILE, tls-alpn=h2+http/1.1, tls-min-version=1.3")
	f.settings.register(flags)
	flags.StringVar(&f.statusAddress, "status-address", "", "`address` of the status server (default all)")
	flags.StringVar(&f.terminationLog, "termination-log", defaultTerminationLog(), "`file` for the container's termination message")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.accessLog, "access-log", "off", "`file` for one line per request, - for standard output, or off; a FIFO may be without a reader")
	flags.StringVar(&f.accessLogForm, "access-log-format", "text", "text or json, each as Istio's Envoys write it")
	flags.StringVar(&f.adminAddress, "admin-address", "", "where the pipe answers Envoy's admin API: `address`, host or host:port, or off (default of agent 127.0.0.1 and ProxyConfig's proxyAdminPort, 15000; of run off). With --proxy envoy: host:port or unix:PATH of a running Envoy to drain")
	f.envoy.register(flags)
	f.h2.register(flags)
	f.capture.register(flags)
	f.limits.register(flags)
	f.endings.register(flags)
	f.stop.register(flags)
	flags.BoolVar(&f.exitWithApp, "exit-with-app", false, "exit when the app has exited by itself, as a job does: detected by its processes with shareProcessNamespace, else by 10s without a socket")
	flags.BoolVar(&f.leanScrape, "lean-scrape", false, "leave Envoy's gauges that only a drain needs out of /stats/prometheus")
	flags.BoolVar(&f.failOnCut, "fail-on-cut", false, "exit with code 3 when connections or requests had to be cut")
}

// defaultTerminationLog is Kubernetes' terminationMessagePath, where the
// platform has mounted it.
func defaultTerminationLog() string {
	const path = "/dev/termination-log"
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return ""
}

const agentHelp = `Carry the inbound traffic of a pod, and drain it when the pod stops.

Runs beside the app as a sidecar. At SIGTERM, or when the app's preStop hook
(lastcall wait) asks for it, it asks every client to close its connection, serves
requests in flight and those that still arrive, and exits when none is left, always
before the platform's SIGKILL.`

func agentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:     "agent --inbound LISTEN=APP …",
		Short:   "Run beside an app: the sidecar",
		Long:    agentHelp,
		Example: "  lastcall agent --inbound :8000=127.0.0.1:8080",
		Args:    cli.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.runAgent(cmd) },
	}
	f.register(cmd.Flags())
	cmd.Flags().IntVar(&f.appContainers, "app-containers", 0, "how many app containers the pod has, `N`: outbound connections of a classic sidecar go on until the end of so many was seen (default $LASTCALL_APP_CONTAINERS or 1)")
	cmd.Flags().StringVar(&f.sidecar, "sidecar", "", "how this container stands in its pod: `native|classic`. An app's preStop hook that comes alone is then known to be that container's restart, and no client is refused. native: an init container with restartPolicy Always and a preStop hook of its own (lastcall wait --sidecar); classic: a container without a preStop hook (default: unknown, and every hook begins a drain)")
	return cmd
}

const runHelp = `Start an app, carry its inbound traffic, and drain it before the app stops.

At SIGTERM, SIGQUIT, --stop-signal, Ctrl-C or the end of its terminal the traffic
is drained first, then the app is told to stop, by the signal that lastcall got
(after Ctrl-C and the terminal's end by SIGTERM; --app-stop-signal), then lastcall
exits with the app's exit code: with 0 in place of that of an app that ends by this
signal (SIGTERM: 143), and with 3 when conversations were cut and
--fail-on-cut is set. Without --inbound the app is a job: lastcall carries no
connections to it, and its exit code stays as it is. In the app's arguments
{port} is the port of --inbound's APP; the app also finds it in PORT. With port 0
there a free one is taken, and lastcall hot-restart replaces both without losing a
request, with --pid-file or under systemd also SIGUSR2 and, without a terminal, SIGHUP. /healthz/ready, lastcall ready and systemd say ready when
the app accepts connections on the port of each --inbound. Under systemd it tells the service manager how it
is (Type=notify, WatchdogSec).`

func runCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "run [--inbound LISTEN=APP …] [flags] -- APP [ARG…]",

		DisableFlagsInUseLine: true, // they stand before the app
		Short:                 "Run an app: on a plain machine, or in a single container",
		Long:                  runHelp,
		Example:               "  lastcall run --inbound :8000=127.0.0.1:0 -- python3 -m http.server {port}",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage{errors.New("missing command: put the app and its arguments after --")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.runApp(cmd, args) },
	}
	f.register(cmd.Flags())
	f.succession.register(cmd.Flags())
	f.stop.registerOfRun(cmd.Flags())
	return cmd
}

// runAgent is lastcall agent.
func (f *agentFlags) runAgent(cmd *cobra.Command) error {
	if err := f.checkSidecar(cmd.Flags()); err != nil {
		return err
	}
	o, closeOptions, err := f.options(cmd, false)
	if err != nil {
		return err
	}
	defer closeOptions()
	o.Sidecar, o.AppContainers = agent.Sidecar(f.sidecar), f.appContainers
	listen, _, err := f.stop.parse(false, false)
	if err != nil {
		return err
	}
	listen.Log = o.Log
	received, stop := signals.Receive(listen)
	defer stop()
	o.Signals, o.StopSignal, o.Reload = received.Stop, received.First, received.Reload
	return exitCode(agent.Run(context.Background(), o))
}

// runApp is lastcall run.
func (f *agentFlags) runApp(cmd *cobra.Command, app []string) error {
	o, closeOptions, err := f.options(cmd, true)
	if err != nil {
		return err
	}
	defer closeOptions()
	if len(o.Inbound) == 0 { // no client connects, so the drain waits for none
		o.Log.Info("no --inbound: running the app as a job; no connections to it are carried or drained")
		o.Settings.MinimumDrain.Value, o.Settings.QuietTime.Value = 0, 0
	}
	neighbour, err := agent.ParseNeighbour(os.Getenv)
	if err != nil {
		return usage{err}
	}
	listen, appStop, err := f.stop.parse(true, f.succession.isAskedFor())
	if err != nil {
		return err
	}
	listen.Log = o.Log
	received, stop := signals.Receive(listen)
	defer stop()
	service, err := f.succession.begin(f, o.Settings, received.Restart, o.Log)
	if err != nil {
		return err
	}
	defer service.Close()
	o.Signals, o.StopSignal, o.Succession = received.Stop, received.First, service
	o.App, o.AppStopSignal = appCommand(app, o.Inbound, hotrestart.AppEnviron(o.Settings.Environ(os.Environ()))), appStop
	if stopped, err := awaitNeighbour(neighbour, received.Stop); err != nil || stopped {
		return err
	}
	code, err := agent.Run(context.Background(), o)
	neighbour.End(code, o.Log)
	return exitCode(code, err)
}

// exitCode is what an agent's end means for the program.
func exitCode(code int, err error) error {
	if err == nil && code != 0 {
		return exit{code}
	}
	return err
}

// checkSidecar checks the flags that only lastcall agent has.
func (f *agentFlags) checkSidecar(flags *pflag.FlagSet) (err error) {
	switch agent.Sidecar(f.sidecar) {
	case agent.UnknownSidecar, agent.NativeSidecar, agent.ClassicSidecar:
	default:
		return usage{fmt.Errorf("--sidecar %q: must be native or classic", f.sidecar)}
	}
	if text := os.Getenv("LASTCALL_APP_CONTAINERS"); text != "" && !flags.Changed("app-containers") {
		if f.appContainers, err = strconv.Atoi(text); err != nil {
			return usage{fmt.Errorf("LASTCALL_APP_CONTAINERS %q: must be a number", text)}
		}
	}
	if f.appContainers < 0 {
		return usage{fmt.Errorf("--app-containers %d: must not be negative", f.appContainers)}
	}
	return nil
}

// options are those that lastcall agent and lastcall run have in common.
func (f *agentFlags) options(cmd *cobra.Command, isRun bool) (o agent.Options, closeOptions func(), err error) {
	level := new(slog.LevelVar)
	log, written, err := newLog(cmd, f.logFormat, level)
	if err != nil {
		return o, nil, err
	}
	isEnvoy, err := f.envoy.isEnvoy()
	if err != nil {
		return o, nil, err
	}
	inbound, err := f.parseInbound(!isEnvoy && !isRun)
	if err != nil {
		return o, nil, err
	}
	settings, err := f.settings.apply(log)
	if err != nil {
		return o, nil, err
	}
	o = agent.Options{
		Settings:       settings,
		Inbound:        inbound,
		StatusAddress:  f.statusAddress,
		TerminationLog: f.terminationLog,
		FailOnCut:      f.failOnCut,
		Outbound:       f.capture.outboundAddress(),
		HookToken:      os.Getenv("LASTCALL_HOOK_TOKEN"),
		SidecarToken:   os.Getenv("LASTCALL_SIDECAR_TOKEN"),
		LeanScrape:     f.leanScrape,
		ExitWithApp:    f.exitWithApp,
		Log:            log,
		Metrics:        []prometheus.Collector{written.Metric("own")},
	}
	if o.AccessLogFormat, err = accesslog.ParseFormat(f.accessLogForm); err != nil {
		return o, nil, usage{fmt.Errorf("--access-log-format: %w", err)}
	}
	if o.Limits, err = f.limits.limits(); err != nil {
		return o, nil, err
	}
	if o.Probes, err = agent.ParseProbes(os.Getenv("ISTIO_KUBE_APP_PROBERS")); err != nil {
		return o, nil, usage{err}
	}
	if o.H2, err = f.h2.limits(); err != nil {
		return o, nil, err
	}
	if isEnvoy {
		closeOptions, err = f.addEnvoy(&o, cmd.OutOrStdout(), written)
		return o, closeOptions, err
	}
	o.Admin = f.admin(settings, isRun, level)
	if o.Endings, err = f.endings.resolve(settings); err != nil {
		return o, nil, err
	}
	o.AccessLog, err = openAccessLog(f.accessLog, cmd.OutOrStdout())
	return o, func() {}, err
}

// addEnvoy makes an Envoy the data plane. What Envoy logs goes through lastcall: a log reader that stalls must not stop it.
func (f *agentFlags) addEnvoy(o *agent.Options, stdout io.Writer, written *logs.Writer) (closeLog func(), err error) {
	o.Envoy, err = f.envoy.options(o.Settings, o.Inbound, f.adminAddress, f.adminAddress != "", f.accessLog, o.Log)
	if err != nil {
		return nil, err
	}
	accessLog := logs.New(stdout, logs.DefaultBound)
	o.Metrics = append(o.Metrics, accessLog.Metric("envoy"))
	o.Envoy.Stdout, o.Envoy.Stderr = logs.NewLines(accessLog), logs.NewLines(written)
	return accessLog.Close, nil
}

// awaitNeighbour waits for another vendor's sidecar, or for a stop signal.
func awaitNeighbour(n agent.Neighbour, stop <-chan drain.Signal) (stopped bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- n.Await(ctx) }()
	select {
	case err := <-served:
		return false, err
	case <-stop:
		cancel()
		<-served
		return true, nil
	}
}

// admin is where the pipe answers Envoy's admin API. Where nobody said it, it is
// no reason not to start.
func (f *agentFlags) admin(s *meshconfig.Settings, isRun bool, level *slog.LevelVar) agent.Admin {
	address := f.adminAddress
	if address == "off" || address == "" && isRun {
		return agent.Admin{}
	}
	if address == "" {
		address = "127.0.0.1"
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(s.AdminPort.Value))
	}
	return agent.Admin{Address: address, Optional: f.adminAddress == "", Version: buildVersion(), Level: level}
}

func (f *agentFlags) parseInbound(needed bool) ([]pipe.Inbound, error) {
	captured, err := f.capture.inbound()
	if err != nil {
		return nil, err
	}
	if needed && len(f.inbound) == 0 && captured == nil {
		return nil, usage{errors.New("missing --inbound: give at least one LISTEN=APP, for example --inbound :8000=127.0.0.1:8080")}
	}
	out := captured
	for _, s := range f.inbound {
		in, err := pipe.ParseInbound(s)
		if err != nil {
			return nil, usage{err}
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

// newLog is the program's own log, on standard error: standard output is for the
// app and the access log. The Writer is the one that run closes.
func newLog(cmd *cobra.Command, format string, level slog.Leveler) (*slog.Logger, *logs.Writer, error) {
	to := cmd.ErrOrStderr().(*logs.Writer)
	log, err := logs.NewLogger(format, to, level)
	if err != nil {
		return nil, nil, usage{fmt.Errorf("--log-format %q: must be text or json", format)}
	}
	return log, to, nil
}

func openAccessLog(name string, stdout io.Writer) (io.Writer, error) {
	switch name {
	case "off", "":
		return nil, nil
	case "-":
		return stdout, nil
	}
	file, err := logs.OpenFile(name)
	if err != nil {
		return nil, fmt.Errorf("open the access log (--access-log takes a file, - or off): %w", err)
	}
	return file, nil
}

// settingsFlags say where the configuration comes from.
type settingsFlags struct {
	compat      string
	statusPort  int
	meshConfig  string
	annotations string
}

func (f *settingsFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.compat, "compat", "", "istio: behave as Istio's agent does, its defaults included")
	flags.IntVar(&f.statusPort, "status-port", 0, "`port` of the status server (default ProxyConfig's statusPort, 15020)")
	flags.StringVar(&f.meshConfig, "mesh-config", meshconfig.DefaultMeshFile, "`file` of the MeshConfig")
	flags.StringVar(&f.annotations, "annotations", meshconfig.DefaultAnnotationsFile, "`file` of the pod's annotations (downward API)")
}

func (f *settingsFlags) resolve() (*meshconfig.Settings, error) {
	return meshconfig.Resolve(meshconfig.Input{
		MeshFile:        f.meshConfig,
		AnnotationsFile: f.annotations,
		Env:             os.Environ(),
		Compat:          f.compat,
		StatusPort:      f.statusPort,
	})
}

// apply resolves the settings, logs what is wrong with them, and applies those of the process.
func (f *settingsFlags) apply(log *slog.Logger) (*meshconfig.Settings, error) {
	settings, err := f.resolve()
	if err != nil {
		return nil, usage{err}
	}
	for _, w := range settings.Warnings {
		log.Warn(w.String())
	}
	for _, c := range settings.Drain().Contradictions() {
		log.Warn(c)
	}
	if n := settings.Concurrency.Value; n != nil && *n > 0 {
		runtime.GOMAXPROCS(*n)
	}
	return settings, nil
}
