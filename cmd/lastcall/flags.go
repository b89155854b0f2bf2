package main

import (
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/agent"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

// agentFlags are common to agent and run.
type agentFlags struct {
	o             agent.Options // what needs no check is registered there
	inbound       []string
	settings      settingsFlags
	logFormat     string
	accessLog     string
	accessLogForm string
	copyTo        string // of agent
	adminAddress  string
	envoy         envoyFlags
	capture       captureFlags
	limits        limitsFlags
	h2            h2Flags
	stop          stopFlags
}

var inboundUsage = "inbound listener and the app's address, `LISTEN=APP[,OPTION…]`, such as " +
	":8000=127.0.0.1:8080,protocol=http; may be repeated. Options: protocol=" + protocolChoice + ", name=NAME, " +
	"max-connections=N; to terminate TLS tls-cert=FILE,tls-key=FILE, and with them tls-client-ca=FILE, " +
	"tls-alpn=h2+http/1.1, tls-min-version=1.3"

// register registers the flags in groups. own registers those that only agent or only run has.
func (f *agentFlags) register(flags *pflag.FlagSet, own func(*pflag.FlagSet)) {
	cli.Group(flags, "Listeners", func(flags *pflag.FlagSet) {
		flags.StringArrayVar(&f.inbound, "inbound", nil, inboundUsage)
		f.capture.register(flags)
		flags.StringVar(&f.o.Status.Address, "status-address", "", "`address` of the status server (default all)")
		f.settings.registerStatusPort(flags)
		flags.StringVar(&f.adminAddress, "admin-address", "",
			"serve Envoy's admin API at this `address`, host or host:port, or off (default of agent: 127.0.0.1 and ProxyConfig's proxyAdminPort, 15000; of run: off). "+
				"With --proxy envoy: host:port or unix:PATH of a running Envoy to drain")
	})
	f.settings.register(flags)
	cli.Group(flags, "App and pod", func(flags *pflag.FlagSet) {
		own(flags)
		flags.StringSliceVar(&f.stop.signals, "stop-signal", nil,
			"`signals` that stop it, in addition to SIGTERM, SIGINT and SIGQUIT: "+
				"the STOPSIGNAL of the image, such as USR1 (haproxy) or WINCH (httpd)")
		flags.BoolVar(&f.o.Pod.ExitWithApp, "exit-with-app", false,
			"exit when the app has exited by itself, as a job does: detected by its processes with shareProcessNamespace, else by 10s without a socket")
		flags.BoolVar(&f.o.FailOnCut, "fail-on-cut", false, "exit with code 3 when connections or requests were cut")
		flags.StringVar(&f.o.TerminationLog, "termination-log", cli.DefaultTerminationLog(),
			"`file` for the container's termination message")
	})
	cli.Group(flags, "Observability", func(flags *pflag.FlagSet) {
		cli.LogFormatFlag(flags, &f.logFormat)
		flags.StringVar(&f.accessLog, "access-log", "off",
			"`file` for one line per request, - for standard output, or off; may be a FIFO, also without a reader")
		cli.ChoiceFlag(flags, &f.accessLogForm, "access-log-format", "text", []string{"text", "json"},
			"format of the access log, as Istio's Envoys write it")
		flags.BoolVar(&f.o.Status.Profiles, "pprof", false,
			"serve Go's profiles at /debug/pprof/ of the status port, to requests from loopback only")
	})
	cli.Group(flags, "Limits", f.limits.register)
	cli.Group(flags, "HTTP/2 limits (-1 for no limit)", f.h2.register)
	cli.Group(flags, "Envoy as the data plane", f.envoy.register)
}

// registerAgent registers the flags that only agent has.
func (f *agentFlags) registerAgent(flags *pflag.FlagSet) {
	cli.ChoiceFlag(flags, (*string)(&f.o.Pod.Sidecar), "sidecar", "", []string{"native", "classic"},
		"form of this sidecar, `native|classic`: an app's preStop hook without the sidecar's own then means that this container restarts, "+
			"and no client is refused. "+
			"native: an init container with restartPolicy Always and its own preStop hook (lastcall wait --sidecar); "+
			"classic: a container without a preStop hook (default: unknown, and every hook begins a drain)")
	flags.StringVar(&f.copyTo, "copy-to", "",
		"first copy this program to `file`, in a volume of the pod, "+
			"for preStop hooks that run in the apps' containers (lastcall wait)")
	setting, _ := meshconfig.FlagOverrides("app-containers")
	flags.UintVar(&f.o.Pod.AppContainers, "app-containers", 0, setting.Usage+" (default $LASTCALL_APP_CONTAINERS or 1)")
}

// stopFlags are the signals that stop lastcall, and the one that stops the app.
type stopFlags struct {
	signals []string
	app     string // of run
	alone   bool   // likewise
}

func (f *stopFlags) registerRun(flags *pflag.FlagSet) {
	flags.StringVar(&f.app, "app-stop-signal", "",
		"`signal` that stops the app (default: the one that stopped lastcall, and SIGTERM for SIGINT, SIGHUP and hooks)")
	flags.BoolVar(&f.alone, "app-stop-alone", false,
		"send the stop signal to the app's own process alone, never to its process group, and do not wait for what it has started")
}

// parse reads the flags: the signals to receive, and the one for the app. SIGHUP reloads the certificates, except from
// a terminal, which sends it when it closes.
func (f *stopFlags) parse() (listen signals.Options, app syscall.Signal, err error) {
	for _, text := range f.signals {
		sig, err := signals.Parse(text)
		if err != nil {
			return listen, 0, usagef("--stop-signal: %w", err)
		}
		listen.Stop = append(listen.Stop, sig)
	}
	if f.app != "" {
		if app, err = signals.Parse(f.app); err != nil {
			return listen, 0, usagef("--app-stop-signal: %w", err)
		}
	}
	switch hup := syscall.SIGHUP; {
	case slices.Contains(listen.Stop, hup), signal.Ignored(hup): // ignored: nohup
	case signals.HasTerminal():
		listen.Stop = append(listen.Stop, hup)
	default:
		listen.Reload = []syscall.Signal{hup}
	}
	return listen, app, nil
}
