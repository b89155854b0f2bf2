package rehearsal

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Defaults: those of the published experiment.
const (
	DefaultDelay       = 10 * time.Second
	DefaultGrace       = 30 * time.Second
	DefaultPropagation = time.Second
)

// Limits of the request's delay.
const (
	minDelay = time.Second
	maxDelay = 10 * time.Minute
)

// Options of a rehearsal.
type Options struct {
	Strategies  []string      // names; empty: all
	Delay       time.Duration // of the request: /delay/N
	Grace       time.Duration // terminationGracePeriodSeconds, whole seconds
	Propagation time.Duration // until the gateway removes the pod's endpoint
	Proxy       string        // of the sidecars: pipe (also empty), envoy or istio-agent
	KeepLogs    string        // folder for all logs; empty: none are kept
	Lastcall    string        // path of lastcall; empty: found or built
	Self        string        // path of this program, which has the built-in app

	Progress *os.File // gets a line of progress, and each row when it is complete; nil: nothing
}

// check returns the strategies, or an error for invalid options.
func (o Options) check() ([]strategy.Strategy, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	all := strategy.Strategies()
	if o.Proxy == strategy.ProxyIstioAgent {
		all = append(all, strategy.NextToIstio()...)
	}
	strategies, err := strategy.Select(all, o.Strategies)
	if err != nil {
		bad("--strategy: %w", err)
	}
	if o.Delay < minDelay || o.Delay > maxDelay {
		bad("--delay is %v: must be %v to %v", o.Delay, minDelay, maxDelay)
	}
	if err := strategy.CheckGrace(o.Grace); err != nil {
		bad("--grace %w", err)
	}
	if o.Propagation < 0 || o.Propagation > time.Minute {
		bad("--propagation is %v: must be 0s to 1m0s", o.Propagation)
	}
	if o.Proxy != "" && o.Proxy != strategy.ProxyPipe && !strategy.UsesEnvoy(o.Proxy) {
		bad("--proxy is %q: must be pipe, envoy or istio-agent", o.Proxy)
	}
	if len(errs) > 0 {
		return nil, load.OptionError{Err: errors.Join(errs...)}
	}
	return strategies, nil
}
