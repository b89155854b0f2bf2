package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
	"github.com/lastcall-dev/lastcall/internal/sidecar/worker"
)

// variableIgnoreFrom is the default of --ignore-from: Kubernetes expands $(NAME) in a container's command, but not in
// a hook's.
const variableIgnoreFrom = "LASTCALL_IGNORE_FROM"

// The headings of wait's flags, one for each of its jobs.
const (
	forEveryHook   = "Every hook"
	forAgent       = "With an agent"
	forWatch       = "Without an agent: --ports, --until, --envoy"
	forWorker      = "A worker: --until"
	forEnvoy       = "Another's Envoy: --envoy"
	forEnvoyItself = "The hook of that Envoy's own container: --envoy and --sidecar"
)

// waitFlags are those of wait.
type waitFlags struct {
	agent    statusFlags // --timeout is every hook's
	appPorts string
	own      own

	plan       plan           // what needs no check is registered there
	until      worker.Options // likewise
	signals    []string       // of --until
	leaveOut   []uint
	ports      []string
	ignoreFrom []string
	settings   settingsFlags
	probes     string
	failOnBusy bool
	output     cli.Format
	report     string
	logFormat  string
}

func (f *waitFlags) register(flags *pflag.FlagSet) {
	cli.Group(flags, forEveryHook, func(flags *pflag.FlagSet) {
		f.agent.registerTimeout(flags, 0)
		flags.BoolVar(&f.plan.Sidecar, "sidecar", false,
			"this is the preStop hook of the agent's own container, or with --envoy of Envoy's, so the pod ends")
		f.own.register(flags)
	})
	cli.Group(flags, forAgent, func(flags *pflag.FlagSet) {
		f.agent.registerAddress(flags)
		flags.StringVar(&f.appPorts, "app-ports", "",
			"the `ports` of this container, separated by commas, or none, in a pod with several app containers: "+
				"its restart then does not affect connections to the others")
	})
	cli.Group(flags, forWatch, f.registerWatch)
	cli.Group(flags, forWorker, f.registerUntil)
	cli.Group(flags, forEnvoy, f.registerEnvoy)
	cli.Group(flags, forEnvoyItself, f.registerSidecar)
}

// check refuses flags of another job than that of given, the result of watched.
func (f *waitFlags) check(flags *pflag.FlagSet, given string) (err error) {
	needs := map[string]string{} // by the heading
	if given == "" {
		needs[forWatch] = "--ports, such as --ports 8080"
	}
	if !flags.Changed("until") {
		needs[forWorker] = "--until, such as --until file:/run/worker/idle"
	}
	if !f.plan.Sidecar {
		needs[forEnvoyItself] = "--sidecar: it is for the hook of Envoy's own container"
	}
	if given != "envoy" {
		needs[forEnvoy] = "--envoy, such as --envoy 127.0.0.1:15000"
		needs[forEnvoyItself] = needs[forEnvoy]
	}
	flags.Visit(func(flag *pflag.Flag) {
		heading := cli.Heading(flags, flag.Name)
		if what := needs[heading]; what != "" {
			err = usagef("--%s needs %s", flag.Name, what)
		} else if given != "" && heading == forAgent {
			err = usagef("use only one of --%s and --%s: with --%[2]s there is no agent", flag.Name, given)
		}
	})
	switch {
	case err != nil:
	case f.agent.timeout < 0:
		err = usagef("--timeout %v: must not be negative", f.agent.timeout)
	case f.plan.Sidecar && given != "" && given != "envoy":
		err = usagef("use only one of --sidecar and --%s: with --%[1]s there is no sidecar", given)
	case f.plan.Sidecar && flags.Changed("app-probes"):
		err = usagef("use only one of --sidecar and --app-probes: it is for the hook of the app's container")
	case !f.plan.Sidecar && f.appPorts != "":
		if err = checkPorts(f.appPorts); err != nil {
			err = usagef("--app-ports: %w", err)
		}
	}
	return err
}

// registerWatch registers the flags of every hook without an agent.
func (f *waitFlags) registerWatch(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.ports, "ports", nil, "watch the connections of the app's ports, `PORT[/PROTOCOL],…`, such as 8080,9090/grpc. "+
		"Connections of http2, grpc, h2c, ws, https, tls, tcp and similar protocols count as busy "+
		"while they are open; without a protocol, and with http, HTTP/1.1 is assumed")
	flags.StringSliceVar(&f.ignoreFrom, "ignore-from", nil,
		"clients that do not count, such as probes: `CIDR` or address, separated by commas (default $"+variableIgnoreFrom+")")
	flags.BoolVar(&f.plan.Fallback.Opaque, "opaque", false, "count every open connection of every port as busy")
	flags.Uint16Var(&f.plan.Fallback.Linkerd, "linkerd", 0,
		"admin `port` of linkerd's proxy in this pod, such as 4191: "+
			"by its counters, connections of HTTP/1.1, HTTP/2 and gRPC are idle as soon as no request is in flight at their port")
	flags.BoolVar(&f.plan.Fallback.LinkerdShutdown, "linkerd-shutdown", false,
		"with --linkerd: after the minimum drain and the quiet time, shut linkerd's proxy down. "+
			"It asks clients to close their kept connections, finishes their requests, "+
			"and refuses new connections, the app's own to others included")
	flags.DurationVar(&f.plan.Fallback.StreamPause, "stream-pause", sockets.DefaultStreamPause,
		"how long a response that arrives in pieces may pause before it counts as complete")
	for _, s := range meshconfig.Table() {
		if slices.Contains([]string{"minimum-drain", "quiet-time", "idle-grace", "grace-period", "app"}, s.Flag) {
			f.settings.registerSetting(flags, s)
		}
	}
	f.settings.registerSetting(flags, meshconfig.Leave)
	flags.StringVar(&f.probes, "app-probes", "", "the container's livenessProbe and startupProbe as `JSON`: if the app fails them, only its "+
		`container restarts, and the command returns at once; such as {"liveness": {"httpGet": {"path": "/live", "port": 8080}}}`)
	flags.BoolVar(&f.failOnBusy, "fail-on-busy", false,
		"exit with code 3 when the deadline came first, with 4 when open connections were assumed idle")
	cli.OutputFlag(flags, &f.output, "`text|json`: text is a log line on standard error, json the report on standard output")
	flags.StringVar(&f.report, "report", "", "also write the report as JSON to `file`, such as /dev/termination-log")
	cli.LogFormatFlag(flags, &f.logFormat)
}

func (f *waitFlags) registerEnvoy(flags *pflag.FlagSet) {
	flags.StringVar(&f.plan.Admin, "envoy", "",
		"`address` of the admin API of the Envoy in this pod: host:port or unix:PATH. "+
			"With --ports, those are watched if it cannot be used")
	flags.Uint16Var(&f.plan.PilotAgent, "pilot-agent", 0,
		"status `port` of Istio's agent, such as 15020: "+
			"begin with POST /drain, after which the agent ends at once at its SIGTERM")
	flags.UintSliceVar(&f.leaveOut, "ignore-port", nil,
		"`port` of an Envoy listener whose connections do not hold the drain; may be repeated")
}

// registerSidecar registers the flags that only the hook of Envoy's own container has.
func (f *waitFlags) registerSidecar(flags *pflag.FlagSet) {
	flags.BoolVar(&f.plan.NoApp, "no-app", false, "with --sidecar: the pod has no app, as a gateway's")
	flags.BoolVar(&f.plan.FailHealthcheck, "healthcheck-fail", false,
		"with --sidecar: make Envoy fail its health checks when the drain begins")
}

func (f *waitFlags) registerUntil(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.signals, "until", nil, "wait until this `SIGNAL` reports that a worker is idle; may be repeated, then all must be idle: "+worker.Syntax)
	flags.DurationVar(&f.until.Stale, "until-stale", worker.DefaultStale,
		"how long a signal of --until may fail before it no longer holds the drain; 0 for no limit")
	flags.DurationVar(&f.until.Heartbeat, "until-heartbeat", 0,
		"how long a busy signal of --until may report the same (value, text, time of modification) before it no longer holds the drain; 0 for no limit")
}

// worker sets what is read of a worker's signals.
func (f *waitFlags) worker() error {
	if len(f.signals) == 0 {
		return nil
	}
	o := f.until
	o.Log = f.plan.Log
	for name, value := range map[string]time.Duration{"until-stale": o.Stale, "until-heartbeat": o.Heartbeat} {
		if value < 0 {
			return usagef("--%s %v: must not be negative", name, value)
		}
	}
	for _, text := range f.signals {
		s, err := worker.Parse(text)
		if err != nil {
			return usagef("--until %w", err)
		}
		o.Signals = append(o.Signals, s)
	}
	f.plan.With = []drain.DataPlane{worker.New(o)}
	return nil
}

// checkPorts accepts a comma-separated list of ports, or none.
func checkPorts(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		if port, err := strconv.ParseUint(text, 10, 16); (err != nil || port == 0) && list != "none" {
			return fmt.Errorf("%q: must be ports from 1 to 65535, separated by commas, or none", text)
		}
	}
	return nil
}
