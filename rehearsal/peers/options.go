package peers

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Defaults.
const (
	DefaultDelay = 10 * time.Second
	DefaultLimit = 75 * time.Second // longer than any peer's deadline, 60 s
)

// spread is the maximum random addition to the delay: the longest polling period of a peer, so that no phase is preferred.
const spread = 5 * time.Second

// Limits of the options.
const (
	minDelay = time.Second
	maxDelay = 5 * time.Minute
	maxLimit = 15 * time.Minute
)

// Options of a measurement.
type Options struct {
	Peers      []string      // names; empty: all
	Delay      time.Duration // of the request, and up to 5 s more
	Limit      time.Duration // for a pod, after which it is "still there"
	EnvoyPath  string        // of a real Envoy; empty: found
	PilotAgent string        // path of Istio's agent, in place of its model; empty: the model
	KeepLogs   string        // folder for all logs; empty: none are kept
	Lastcall   string        // path of lastcall; empty: found or built
	Self       string        // path of this program, which has the built-in app

	Progress *os.File // gets a line of progress; nil: nothing
}

func (o Options) check() ([]Peer, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	chosen, err := choose(o.Peers)
	if err != nil {
		bad("--peer: %w", err)
	}
	if o.Delay < minDelay || o.Delay > maxDelay {
		bad("--delay is %v: must be %v to %v", o.Delay, minDelay, maxDelay)
	}
	if least := o.Delay + spread + time.Second; o.Limit < least || o.Limit > maxLimit {
		bad("--limit is %v: must be %v, which the request needs, to %v", o.Limit, least, maxLimit)
	}
	if len(errs) > 0 {
		return nil, strategy.OptionError{Err: errors.Join(errs...)}
	}
	return chosen, nil
}
