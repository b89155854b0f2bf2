package lastcall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// Option changes how Serve and Run end. Options win over environment variables, which win over defaults.
type Option func(*settings)

// WithGracePeriod sets the pod's terminationGracePeriodSeconds: SIGKILL comes this long after
// SIGTERM. The default is 30 s, or TERMINATION_GRACE_PERIOD_SECONDS.
func WithGracePeriod(d time.Duration) Option {
	return func(s *settings) { s.config.GracePeriod = d }
}

// WithMinimumDrain sets how long new connections are accepted after SIGTERM, at least, because endpoints and load
// balancers learn late that the pod ends. The default is 5 s, or MINIMUM_DRAIN_DURATION.
func WithMinimumDrain(d time.Duration) Option {
	return func(s *settings) { s.config.MinimumDrain = d }
}

// WithQuietTime sets how long no connection or request may have arrived before the draining phase ends. It extends the
// minimum drain, up to [drain.Config.DrainCap]. The default is 2 s, or LASTCALL_QUIET_TIME.
func WithQuietTime(d time.Duration) Option {
	return func(s *settings) { s.config.QuietTime = d }
}

// WithIdleGrace sets the idle grace: after the draining phase, a kept-alive connection is closed once it
// has been idle for this long. The default is 2 s, or LASTCALL_IDLE_GRACE.
func WithIdleGrace(d time.Duration) Option {
	return func(s *settings) { s.config.IdleGrace = d }
}

// WithLastCallMargin sets how long before SIGKILL the last call is made, at most a quarter of the grace
// period. The default is 2 s, or LASTCALL_LAST_CALL_MARGIN.
func WithLastCallMargin(d time.Duration) Option {
	return func(s *settings) { s.config.Margin = d }
}

// WithListener makes Serve accept on these listeners, which it takes over, instead of the server's Addr.
func WithListener(listeners ...net.Listener) Option {
	return func(s *settings) { s.listeners = append(s.listeners, listeners...) }
}

// WithTLSFiles makes Serve use TLS with this certificate. It is not needed when the server's TLSConfig has one.
func WithTLSFiles(certFile, keyFile string) Option {
	return func(s *settings) { s.certFile, s.keyFile = certFile, keyFile }
}

// With drains more data planes together with the first: a Worker, a gRPC server, another HTTP server.
func With(planes ...drain.DataPlane) Option {
	return func(s *settings) { s.others = append(s.others, planes...) }
}

// WithSideServer serves other servers on their Addr until the very end, such as for metrics or pprof. They are
// not drained: their requests never delay the end, and are answered until the report has been logged.
func WithSideServer(servers ...*http.Server) Option {
	return func(s *settings) { s.sides = append(s.sides, servers...) }
}

// WithBackground runs functions next to the server, whose context ends when every conversation has ended: pools,
// producers, caches, all that requests in flight need until their end. The context that Serve is given ends
// too early for them if it ends at SIGTERM. Serve waits for them, no longer than until SIGKILL. An error begins the
// drain, and Serve returns it; an error that the end of the context has caused is none.
func WithBackground(functions ...func(context.Context) error) Option {
	return func(s *settings) { s.background = append(s.background, functions...) }
}

// WithUncounted sets which requests do not delay the end, neither as busy nor as arrivals. Requests of
// known health checks never count: see httpdrain.IsHealthCheck.
func WithUncounted(uncounted func(*http.Request) bool) Option {
	return func(s *settings) { s.uncounted = uncounted }
}

// WithLastCallAnswer sets the handler of requests that have no response yet at the last call. The
// default is a 503 in plain text, and UNAVAILABLE for gRPC. It runs in another goroutine than the
// request's handler, and must not read the body.
func WithLastCallAnswer(answer http.HandlerFunc) Option {
	return func(s *settings) { s.answer = answer }
}

// WithStatusAddress serves /ready and /prestop on an address of its own, such as ":8081", until the
// very end. See the package's comment.
func WithStatusAddress(address string) Option {
	return func(s *settings) { s.statusAddress = address }
}

// WithTerminationMessage writes the report as JSON to a file, such as /dev/termination-log: it is then
// in the pod's status.
func WithTerminationMessage(file string) Option {
	return func(s *settings) { s.message = file }
}

// WithDrainedByHook sets whether the container's SIGTERM comes only after a preStop hook has drained the pod, as in a
// pod that lastcall has injected: the drain is not repeated then. The default is false, or LASTCALL_DRAINED_BY_HOOK,
// which lastcall's injector sets. If requests are still arriving at SIGTERM, it is ignored.
func WithDrainedByHook(drained bool) Option {
	return func(s *settings) { s.drainedByHook = drained }
}

// WithSignals replaces SIGTERM and SIGINT by signals of the caller's own.
func WithSignals(signals <-chan drain.Signal) Option {
	return func(s *settings) { s.signals = signals }
}

// WithLogger sets where the phases and the report are logged. The default is slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(s *settings) { s.log = log }
}

const variableHookToken = "LASTCALL_HOOK_TOKEN" // the agent's, too

// fromEnvironment reads the variables that are set, over the defaults.
func fromEnvironment(getenv func(string) string) (settings, error) {
	s := settings{config: drain.DefaultConfig(), hookToken: getenv(variableHookToken)}
	var errs []error
	for _, v := range []struct {
		name   string
		to     *time.Duration
		parse  func(string) (time.Duration, bool)
		format string
	}{
		{timers.GracePeriod, &s.config.GracePeriod, timers.ParseGracePeriod, timers.GracePeriodFormat},
		{timers.MinimumDrain, &s.config.MinimumDrain, timers.ParseDuration, timers.DurationFormat},
		{timers.QuietTime, &s.config.QuietTime, timers.ParseDuration, timers.DurationFormat},
		{timers.IdleGrace, &s.config.IdleGrace, timers.ParseDuration, timers.DurationFormat},
		{timers.Margin, &s.config.Margin, timers.ParseDuration, timers.DurationFormat},
	} {
		text := getenv(v.name)
		if text == "" {
			continue
		}
		d, ok := v.parse(text)
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %q: must be %s", v.name, text, v.format))
			continue
		}
		*v.to = d
	}
	if text := getenv(timers.DrainedByHook); text != "" {
		drained, err := strconv.ParseBool(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: must be true or false", timers.DrainedByHook, text))
		}
		s.drainedByHook = drained
	}
	return s, errors.Join(errs...)
}

// misspelt warns of variables that have no effect because of their names.
func misspelt(log *slog.Logger, environ []string) {
	read := []string{timers.GracePeriod, timers.MinimumDrain, timers.QuietTime, timers.IdleGrace, timers.Margin,
		timers.DrainedByHook, variableHookToken}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if meant, ok := timers.Nearest(name, read); ok && !slices.Contains(read, name) {
			log.Warn("unknown setting, has no effect on lastcall: did you mean "+meant+"?", "variable", name)
		}
	}
}
