package rehearsal

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Defaults, which are the experiment's.
const (
	DefaultDelay       = 10 * time.Second
	DefaultGrace       = 30 * time.Second
	DefaultPropagation = time.Second
)

// Limits of what may be asked for.
const (
	minDelay = time.Second
	maxDelay = 10 * time.Minute
)

// Options of a rehearsal.
type Options struct {
	Strategies  []string      // names; none means all
	Delay       time.Duration // of the request: /delay/N
	Grace       time.Duration // terminationGracePeriodSeconds, whole seconds
	Propagation time.Duration // until the gateway learns that the endpoint is gone
	App         string        // command line in place of the built-in app, with {port}
	Gateway     string        // command line in place of the built-in gateway, with {port} and {endpoints} or {endpoint}; or envoy
	Proxy       string        // of the sidecars: pipe (also empty) or envoy
	EnvoyPath   string        // of a real Envoy; empty: found
	Client      string        // go or curl
	KeepLogs    string        // folder for what everything wrote; empty: nothing is kept
	Lastcall    string        // path of lastcall; empty: found or built
	Self        string        // path of lastcallctl

	Progress *os.File // shows where it stands; nil: nothing
}

// check fills nothing in: it says what is wrong.
func (o Options) check() ([]strategy.Strategy, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	strategies, err := strategy.Select(strategy.Strategies(), o.Strategies)
	if err != nil {
		bad("--strategy: %w", err)
	}
	if o.Delay < minDelay || o.Delay > maxDelay {
		bad("--delay is %v: accepted is %v to %v", o.Delay, minDelay, maxDelay)
	}
	if err := strategy.CheckGrace(o.Grace); err != nil {
		bad("--grace %w", err)
	}
	if o.Propagation < 0 || o.Propagation > time.Minute {
		bad("--propagation is %v: accepted is 0s to 1m0s", o.Propagation)
	}
	if o.App != "" {
		if err := strategy.CheckLine(o.App, "{port}"); err != nil {
			bad("--app: %w", err)
		}
	}
	if o.Proxy != "" && o.Proxy != strategy.ProxyPipe && o.Proxy != strategy.ProxyEnvoy {
		bad("--proxy is %q: accepted are pipe and envoy", o.Proxy)
	}
	if o.EnvoyPath != "" && !o.needsEnvoy() {
		bad("--envoy-path: no Envoy is played with: say --proxy envoy, --gateway envoy or both")
	}
	if o.Gateway != "" && o.Gateway != strategy.ProxyEnvoy {
		if err := strategy.CheckLine(o.Gateway, "{port}"); err != nil {
			bad("--gateway: %w", err)
		}
	}
	if len(errs) > 0 {
		return nil, strategy.OptionError{Err: errors.Join(errs...)}
	}
	return strategies, nil
}

// needsEnvoy says whether a real Envoy is played with.
func (o Options) needsEnvoy() bool {
	return o.Proxy == strategy.ProxyEnvoy || o.Gateway == strategy.ProxyEnvoy
}

// otherGateway says whether the gateway's words are its own: those of the built-in one and of Envoy are
// known.
func (o Options) otherGateway() bool { return o.Gateway != "" && o.Gateway != strategy.ProxyEnvoy }
