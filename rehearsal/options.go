package rehearsal

import (
	"errors"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Defaults: those of the published experiment.
const (
	DefaultDelay = 10 * time.Second
	DefaultGrace = 30 * time.Second
)

// propagation is how long it takes from the scale-down until the gateway removes the pod's endpoint.
const propagation = time.Second

// Limits of the request's delay.
const (
	minDelay = time.Second
	maxDelay = 10 * time.Minute
)

// Options of a rehearsal.
type Options struct {
	strategy.Setup               // by default all strategies
	Delay          time.Duration // of the request: /delay/N
	Grace          time.Duration // terminationGracePeriodSeconds, whole seconds
	Proxy          string        // of the sidecars: pipe (also empty), envoy or istio-agent
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
	if len(errs) > 0 {
		return nil, load.OptionError{Err: errors.Join(errs...)}
	}
	return strategies, nil
}
