package service

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Limits of the options.
const (
	maxRepeat  = 100
	maxTimeout = time.Hour
)

// DefaultPropagation is how long clients take to learn of a change.
var DefaultPropagation = Span{0, 4 * time.Second}

// Options of a rehearsal.
type Options struct {
	Command     string         // command line of the app; {port} and the variable PORT are its port
	Pod         Pod            // from the manifest
	Requests    []load.Request // at least one
	Load        float64        // requests a second, for each strategy; 0: about two in flight, at most 20 a second
	Descriptors string         // load.Load.Descriptors
	Propagation Span
	Timeout     time.Duration // of a request; 0: load.DefaultTimeout
	Strategies  []string      // names; empty: as-is and lastcall. The first one decides whether the rehearsal passes.
	Repeat      int           // runs, one after another; 0: 1
	KeepLogs    string        // folder for all logs; empty: none are kept
	Lastcall    string        // path of lastcall; empty: found or built
	Self        string        // path of this program

	Progress *os.File // gets a line of progress; nil: nothing
}

// check fills in defaults and returns the strategies, in the order of their names in the options.
func (o *Options) check() ([]strategy.Strategy, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if strings.TrimSpace(o.Command) == "" {
		bad("missing --app: the command that starts your service, with {port} or the variable PORT as its port, as --app 'node server.js' or --app './web --listen :{port}'")
	}
	if len(o.Requests) == 0 {
		bad("missing --request: a request that the app answers, as --request 'GET /'")
	}
	if o.Pod.Grace == 0 {
		o.Pod.Grace = DefaultGrace
	}
	if err := strategy.CheckGrace(o.Pod.Grace); err != nil {
		bad("--grace %w", err)
	}
	if o.Load < 0 || o.Load > load.MaxRate {
		bad("--load is %g/s: must be more than 0, at most %g/s", o.Load, load.MaxRate)
	}
	if o.Repeat == 0 {
		o.Repeat = 1
	}
	if o.Repeat < 1 || o.Repeat > maxRepeat {
		bad("--repeat is %d: must be 1 to %d", o.Repeat, maxRepeat)
	}
	if o.Timeout == 0 {
		o.Timeout = load.DefaultTimeout
	}
	if o.Timeout < time.Second || o.Timeout > maxTimeout {
		bad("--timeout is %v: must be 1s to %v", o.Timeout, maxTimeout)
	}
	if len(o.Strategies) == 0 {
		o.Strategies = []string{AsIs, lastcallName}
	}
	all, err := strategy.Select(Strategies(), o.Strategies)
	if err != nil {
		bad("--strategy: %w", err)
	}
	if len(errs) > 0 {
		return nil, strategy.OptionError{Err: errors.Join(errs...)}
	}
	slices.SortFunc(all, func(a, b strategy.Strategy) int {
		return slices.Index(o.Strategies, a.Name) - slices.Index(o.Strategies, b.Name)
	})
	return all, nil
}

// isTCP reports whether the app's protocol is not HTTP.
func (o *Options) isTCP() bool {
	return slices.ContainsFunc(o.Requests, func(r load.Request) bool { return r.Protocol == traffic.TCP })
}
