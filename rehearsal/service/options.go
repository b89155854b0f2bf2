package service

import (
	"cmp"
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

// maxRepeat is the limit of Options.Repeat.
const maxRepeat = 100

// maxLasting is the limit of Options.Lasting.
const maxLasting = 24 * time.Hour

// DefaultPropagation is how long clients take to learn of a change.
var DefaultPropagation = Span{0, 4 * time.Second}

// Options of a rehearsal.
type Options struct {
	Command      string // command line of the app; {port} and the variable PORT are its port
	Pod          Pod    // from the manifest
	load.Options        // for each strategy
	Propagation  Span
	Strategies   []string // names; empty: as-is and lastcall. The first one decides whether the rehearsal passes.
	Repeat       int      // runs, one after another; 0: 1
	KeepLogs     string   // folder for all logs; empty: none are kept
	Lastcall     string   // path of lastcall; empty: found or built
	Self         string   // path of this program

	Replicas int           // pods; 0: 1
	Lasting  time.Duration // pods are replaced one after another for so long; 0: one is replaced
	// The app is the built-in one; half of the load goes through the built-in gateway, and clients repeat refused
	// requests elsewhere.
	IsBuiltIn bool

	Progress *os.File // gets a line of progress; nil: nothing
}

// check fills in defaults and returns the strategies, in the order of their names in the options.
func (o *Options) check() ([]strategy.Strategy, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if strings.TrimSpace(o.Command) == "" && !o.IsBuiltIn {
		bad("missing --app: the command that starts your service, " +
			"with {port} or the variable PORT as its port, as --app 'node server.js' or --app './web --listen :{port}'")
	}
	if err := o.Options.Check(); err != nil {
		errs = append(errs, err)
	}
	o.Replicas = max(1, o.Replicas)
	o.Pod.Grace = cmp.Or(o.Pod.Grace, DefaultGrace)
	if err := strategy.CheckGrace(o.Pod.Grace); err != nil {
		bad("--grace %w", err)
	}
	o.Repeat = cmp.Or(o.Repeat, 1)
	if o.Repeat < 1 || o.Repeat > maxRepeat {
		bad("--repeat is %d: must be 1 to %d", o.Repeat, maxRepeat)
	}
	if o.Lasting < 0 || o.Lasting > maxLasting {
		bad("--requests at this --rate take %v: must be at most %v", o.Lasting, maxLasting)
	}
	from := Strategies()
	switch {
	case o.IsBuiltIn:
		from = rolloutStrategies()
	case len(o.Strategies) == 0:
		o.Strategies = []string{AsIs, lastcallName}
	}
	all, err := strategy.Select(from, o.Strategies)
	if err != nil {
		bad("--strategy: %w", err)
	}
	if len(errs) > 0 {
		return nil, load.OptionError{Err: errors.Join(errs...)}
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

// Pod has a manifest's settings for the end of its pods.
type Pod struct {
	strategy.Service
	Workload  string        // "Deployment shop/web"; empty: no manifest
	Grace     time.Duration // terminationGracePeriodSeconds
	Container string        // the one that serves
	Missing   []string      // variables whose values the manifest lacks
	Notes     []string      // settings of the manifest that the rehearsal leaves out
}

// DefaultGrace is terminationGracePeriodSeconds' default.
const DefaultGrace = 30 * time.Second

// AsIs is the strategy of the manifest itself.
const AsIs = "as-is"

// lastcallName is the strategy of lastcall's injection.
const lastcallName = "lastcall"

// Strategies returns the ways to stop the pods, the manifest's own first.
func Strategies() []strategy.Strategy {
	const joined = "; its hook joins the manifest's"
	sleep := func(d time.Duration) strategy.Strategy {
		words := "a preStop sleep of " + d.String() + " in place of the manifest's hook"
		return strategy.Strategy{Name: "sleep-" + d.String(), Sidecar: strategy.NoSidecar, Sleep: d, Words: words}
	}
	return []strategy.Strategy{
		{Name: AsIs, Sidecar: strategy.NoSidecar, Words: "the manifest's own hook and timers"},
		{Name: lastcallName, Sidecar: strategy.Lastcall, Words: "lastcall's sidecar" + joined},
		{Name: "lastcall-native", Sidecar: strategy.LastcallNative, Words: "lastcall's native sidecar" + joined},
		{Name: "lastcall-hook", Sidecar: strategy.NoSidecar, SocketWait: true,
			Words: "lastcall wait --ports as the preStop hook, without a sidecar"},
		sleep(5 * time.Second),
		sleep(15 * time.Second),
		{Name: "istio", Sidecar: strategy.Fixed, TerminationDrain: 5 * time.Second,
			Words: "Istio's sidecar with its defaults, imitated by lastcall agent --compat istio"},
		{Name: "istio-exit-on-zero", Sidecar: strategy.ExitOnZero,
			Words: "Istio's sidecar with EXIT_ON_ZERO_ACTIVE_CONNECTIONS, imitated"},
		{Name: "istio-native", Sidecar: strategy.IstioNative, Words: "Istio's native sidecar, imitated"},
	}
}

// Span is a range of propagation delays: the fastest client learns of a change after From, the slowest after To.
type Span struct{ From, To time.Duration }

const maxPropagation = 5 * time.Minute

// ParseSpan parses "4s" (0s to 4s) or "1s..4s".
func ParseSpan(text string) (s Span, err error) {
	from, to, found := strings.Cut(text, "..")
	if !found {
		from, to = "0s", text
	}
	if s.From, err = time.ParseDuration(from); err == nil {
		s.To, err = time.ParseDuration(to)
	}
	if err != nil || s.From < 0 || s.To < s.From || s.To > maxPropagation {
		return Span{}, fmt.Errorf("propagation delay is %q: must be a duration or FROM..TO, as 0s..4s, at most %v",
			text, maxPropagation)
	}
	return s, nil
}

// String is the span as ParseSpan reads it.
func (s Span) String() string { return s.From.String() + ".." + s.To.String() }

// at is the delay of client i of n.
func (s Span) at(i, n int) time.Duration {
	if n < 2 {
		return s.To
	}
	return s.From + (s.To-s.From)*time.Duration(i)/time.Duration(n-1)
}
