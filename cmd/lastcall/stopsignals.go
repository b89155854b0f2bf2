package main

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/agent"
)

// stopFlags say which signals tell to stop, and which one the app gets.
type stopFlags struct {
	signals []string
	app     string // of run

	more []syscall.Signal // beside the defaults
	hup  hangup
}

// hangup is what SIGHUP means.
type hangup int

const (
	hangupIgnored  hangup = iota // as nohup has it
	hangupStops                  // the terminal is closed, or it is asked for
	hangupRestarts               // a hot restart of lastcall run
	hangupReloads                // the certificates of lastcall agent
)

func (f *stopFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.signals, "stop-signal", nil, "`signals` that tell it to stop beside SIGTERM, SIGINT and SIGQUIT: the STOPSIGNAL of the image, such as USR1 (haproxy) or WINCH (httpd)")
}

func (f *stopFlags) registerOfRun(flags *pflag.FlagSet) {
	flags.StringVar(&f.app, "app-stop-signal", "", "`signal` that tells the app to stop (default the one that lastcall got; SIGTERM for SIGINT, SIGHUP and hooks)")
}

// parse reads the flags. isRun and restarts tell what SIGHUP means: a hot restart
// only where it was asked for. A closed terminal sends it, too.
func (f *stopFlags) parse(isRun, restarts bool) (app syscall.Signal, err error) {
	for _, text := range f.signals {
		sig, err := agent.ParseSignal(text)
		if err != nil {
			return 0, usage{fmt.Errorf("--stop-signal: %w", err)}
		}
		if isRun && sig == syscall.SIGUSR2 {
			return 0, usage{fmt.Errorf("--stop-signal %s: it asks lastcall run for a hot restart; choose another STOPSIGNAL", text)}
		}
		f.more = append(f.more, sig)
	}
	if f.app != "" {
		if app, err = agent.ParseSignal(f.app); err != nil {
			return 0, usage{fmt.Errorf("--app-stop-signal: %w", err)}
		}
	}
	switch {
	case slices.Contains(f.more, syscall.SIGHUP):
		f.hup = hangupStops
	case signal.Ignored(syscall.SIGHUP):
		f.hup = hangupIgnored
	case agent.HasTerminal():
		f.hup = hangupStops
	case isRun && restarts:
		f.hup = hangupRestarts
	case isRun:
		f.hup = hangupStops
	default:
		f.hup = hangupReloads
	}
	if f.hup == hangupStops {
		f.more = append(f.more, syscall.SIGHUP)
	}
	return app, nil
}

// restarts are the signals that ask for a hot restart, beside SIGUSR2.
func (f *stopFlags) restarts() []os.Signal {
	if f.hup == hangupRestarts {
		return []os.Signal{syscall.SIGHUP}
	}
	return nil
}
