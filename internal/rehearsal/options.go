package rehearsal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/lastcall-dev/lastcall/internal/rehearsal/stage"
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
	maxGrace = time.Hour
)

// Options of a rehearsal.
type Options struct {
	Strategies  []string      // names; none means all
	Delay       time.Duration // of the request: /delay/N
	Grace       time.Duration // terminationGracePeriodSeconds, whole seconds
	Propagation time.Duration // until the gateway learns that the endpoint is gone
	App         string        // command line in place of the built-in app, with {port}
	Gateway     string        // command line in place of the built-in gateway, with {port} and {endpoints} or {endpoint}
	Client      string        // go or curl
	KeepLogs    string        // folder for what everything wrote; empty: nothing is kept
	Lastcall    string        // path of lastcall; empty: found or built
	Self        string        // path of lastcallctl

	Progress *os.File  // shows where it stands; nil: nothing
	Warnings io.Writer // gets what is worth knowing before it begins; nil: nothing
}

// ErrOption is wrapped by errors about an option's value.
var ErrOption = errors.New("option")

// check fills nothing in: it says what is wrong.
func (o Options) check() ([]stage.Strategy, client, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrOption}, args...)...)
	}
	var errs []error
	strategies, err := stage.Select(stage.Strategies(), o.Strategies)
	if err != nil {
		errs = append(errs, bad("--strategy: %w", err))
	}
	if o.Delay < minDelay || o.Delay > maxDelay {
		errs = append(errs, bad("--delay is %v: accepted is %v to %v", o.Delay, minDelay, maxDelay))
	}
	if o.Grace < time.Second || o.Grace > maxGrace || o.Grace%time.Second != 0 {
		errs = append(errs, bad("--grace is %v: accepted is 1s to %v in whole seconds, as terminationGracePeriodSeconds is", o.Grace, maxGrace))
	}
	if o.Propagation < 0 || o.Propagation > time.Minute {
		errs = append(errs, bad("--propagation is %v: accepted is 0s to 1m0s", o.Propagation))
	}
	ask, err := clientFor(o.Client)
	if err != nil {
		errs = append(errs, bad("--client: %w", err))
	}
	if o.App != "" {
		if err := stage.CheckLine(o.App, "{port}"); err != nil {
			errs = append(errs, bad("--app: %w", err))
		}
	}
	if o.Gateway != "" {
		if err := stage.CheckLine(o.Gateway, "{port}"); err != nil {
			errs = append(errs, bad("--gateway: %w", err))
		}
	}
	return strategies, ask, errors.Join(errs...)
}
