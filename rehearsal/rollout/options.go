package rollout

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Defaults.
const (
	DefaultRequests    = 20_000
	DefaultRate        = 200 // requests per second, for each strategy
	DefaultPropagation = 4 * time.Second
	DefaultGrace       = 30 * time.Second
	replicas           = 3
)

// Limits of the options.
const (
	maxRequests = 10_000_000
	maxRate     = 5000
)

// Options of a rollout.
type Options struct {
	Strategies  []string      // names; empty: all
	Requests    int           // of each strategy
	Rate        int           // requests a second, of each strategy
	Propagation time.Duration // maximum propagation delay: each change takes a random time from 0 to this
	Grace       time.Duration // terminationGracePeriodSeconds, whole seconds
	KeepLogs    string        // folder for all logs; empty: none are kept
	Lastcall    string        // path of lastcall; empty: found or built
	Self        string        // path of this program, which has the built-in app and gateway

	Progress *os.File // gets a line of progress; nil: nothing
}

// Strategies returns the strategies of a rollout.
func Strategies() []strategy.Strategy {
	return []strategy.Strategy{
		{Name: "lastcall", Sidecar: strategy.Lastcall, App: strategy.Exits,
			Words: "lastcall wait as preStop; the app exits at SIGTERM"},
		{Name: "istio-default", Sidecar: strategy.Fixed, TerminationDrain: 5 * time.Second, App: strategy.ClosesListener,
			Words: "terminationDrainDuration of 5 s; the app closes its listener at SIGTERM, then finishes"},
		{Name: "istio-exit-on-zero", Sidecar: strategy.ExitOnZero, App: strategy.ClosesListener,
			Words: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS; the app closes its listener at SIGTERM, then finishes"},
		{Name: "prestop-sleep-5", Sidecar: strategy.Fixed, TerminationDrain: 5 * time.Second, Sleep: 5 * time.Second, App: strategy.ClosesListener,
			Words: "Istio's default after a preStop sleep of 5 s on app and proxy; the app finishes"},
		{Name: "none", Sidecar: strategy.NoSidecar, App: strategy.Exits,
			Words: "no sidecar and no hook; the app exits at SIGTERM"},
	}
}

func (o Options) check() ([]strategy.Strategy, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	strategies, err := strategy.Select(Strategies(), o.Strategies)
	if err != nil {
		bad("--strategy: %w", err)
	}
	if o.Requests < 1 || o.Requests > maxRequests {
		bad("--requests is %d: must be 1 to %d", o.Requests, maxRequests)
	}
	if o.Rate < 1 || o.Rate > maxRate {
		bad("--rate is %d: must be 1 to %d requests a second", o.Rate, maxRate)
	}
	if o.Propagation < 0 || o.Propagation > time.Minute {
		bad("--propagation is %v: must be 0s to 1m0s", o.Propagation)
	}
	if err := strategy.CheckGrace(o.Grace); err != nil {
		bad("--grace %w", err)
	}
	if len(errs) > 0 {
		return nil, strategy.OptionError{Err: errors.Join(errs...)}
	}
	return strategies, nil
}
