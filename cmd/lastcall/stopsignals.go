package main

import (
	"fmt"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

// stopFlags are the signals that stop lastcall, and the one that stops the app.
type stopFlags struct {
	signals []string
	app     string // of run
}

func (f *stopFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.signals, "stop-signal", nil,
		"`signals` that stop it, in addition to SIGTERM, SIGINT and SIGQUIT: the STOPSIGNAL of the image, such as USR1 (haproxy) or WINCH (httpd)")
}

func (f *stopFlags) registerRun(flags *pflag.FlagSet) {
	flags.StringVar(&f.app, "app-stop-signal", "", "`signal` that stops the app (default: the one that stopped lastcall, and SIGTERM for SIGINT, SIGHUP and hooks)")
}

// parse reads the flags: the signals to receive, and the one for the app. SIGHUP starts a hot
// restart only if restarts is set, since a terminal that closes sends it too.
func (f *stopFlags) parse(isRun, restarts bool) (listen signals.Options, app syscall.Signal, err error) {
	for _, text := range f.signals {
		sig, err := signals.Parse(text)
		if err != nil {
			return listen, 0, usage(fmt.Errorf("--stop-signal: %w", err))
		}
		if isRun && sig == syscall.SIGUSR2 {
			return listen, 0, usage(fmt.Errorf("--stop-signal %s: it starts a hot restart of lastcall run; choose another STOPSIGNAL", text))
		}
		listen.Stop = append(listen.Stop, sig)
	}
	if f.app != "" {
		if app, err = signals.Parse(f.app); err != nil {
			return listen, 0, usage(fmt.Errorf("--app-stop-signal: %w", err))
		}
	}
	if isRun {
		listen.Restart = []syscall.Signal{syscall.SIGUSR2}
	}
	switch hup := syscall.SIGHUP; {
	case slices.Contains(listen.Stop, hup), signal.Ignored(hup): // ignored: nohup
	case signals.HasTerminal():
		listen.Stop = append(listen.Stop, hup)
	case isRun && restarts:
		listen.Restart = append(listen.Restart, hup)
	case isRun:
		listen.Stop = append(listen.Stop, hup)
	default:
		listen.Reload = []syscall.Signal{hup}
	}
	return listen, app, nil
}
