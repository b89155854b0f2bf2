package drain

import (
	"errors"
	"fmt"
	"time"
)

// Mode chooses what ends the data plane.
type Mode int

const (
	// ExitOnZero is lastcall's own mode: end when no connection is busy and no client connects any longer, and always
	// before the deadline.
	ExitOnZero Mode = iota

	// IstioExitOnZero is pilot-agent's EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true:
	// sleep for the minimum drain, then poll once a second until no connection is open. It has no deadline.
	IstioExitOnZero

	// Fixed is pilot-agent's default: sleep for TerminationDrain, then kill.
	Fixed
)

var modeNames = []string{"exit-on-zero", "istio-exit-on-zero", "fixed"}

func (m Mode) String() string { return nameOf(m, "Mode", modeNames) }

// Defaults: Istio's from pilot-agent 1.31, and lastcall's own.
const (
	DefaultTerminationDrain = 5 * time.Second        // ProxyConfig.terminationDrainDuration
	DefaultMinimumDrain     = 5 * time.Second        // MINIMUM_DRAIN_DURATION
	DefaultQuietTime        = 2 * time.Second        // how late kube-proxy and load balancers get a removed endpoint
	DefaultIdleGrace        = 2 * time.Second        // an idle keep-alive connection is closed after this
	DefaultGracePeriod      = 30 * time.Second       // Kubernetes' terminationGracePeriodSeconds
	DefaultMargin           = 2 * time.Second        // last call before the kubelet's SIGKILL
	DefaultPollInterval     = 100 * time.Millisecond // for data planes that cannot push
	istioMaxRetries         = 5                      // after as many failed polls pilot-agent gives up
	callTimeout             = 2 * time.Second        // for a call of the data plane without a deadline of its own
)

const (
	// IstioPollInterval is how often pilot-agent counts connections: activeConnectionCheckDelay.
	IstioPollInterval = time.Second

	// LeastGrace is the time that the kubelet leaves a container after its stop signal, even if a preStop hook has used up
	// the grace period: minimumGracePeriodInSeconds.
	LeastGrace = 2 * time.Second
)

// Config has the timers of a termination. A zero duration means zero, not the default: start from DefaultConfig.
type Config struct {
	Mode Mode

	// TerminationDrain is how long Fixed waits (terminationDrainDuration).
	TerminationDrain time.Duration

	// MinimumDrain is the shortest time for which new connections are accepted.
	MinimumDrain time.Duration

	// QuietTime is how long no connection or request may have arrived before the draining phase ends. It extends the
	// minimum drain, up to DrainCap.
	QuietTime time.Duration

	// App is the app's reaction to its SIGTERM. It decides when the app gets it while opaque connections are open.
	App AppEnd

	// IdleGrace is how long a kept-alive connection may be idle, after the draining phase, before it is closed.
	IdleGrace time.Duration

	// GracePeriod is the pod's terminationGracePeriodSeconds: SIGKILL comes this long after the start of the termination.
	GracePeriod time.Duration

	// Margin is how long before SIGKILL the last call is made, at most a quarter of the grace period.
	Margin time.Duration

	// Deadline is how long after the start the last call is made, within the grace period. Zero is Margin before SIGKILL.
	Deadline time.Duration

	// PollInterval is how often Activity of a data plane without Changes is polled.
	PollInterval time.Duration
}

// DefaultConfig returns lastcall's defaults.
func DefaultConfig() Config {
	return Config{
		Mode:             ExitOnZero,
		TerminationDrain: DefaultTerminationDrain,
		MinimumDrain:     DefaultMinimumDrain,
		QuietTime:        DefaultQuietTime,
		IdleGrace:        DefaultIdleGrace,
		GracePeriod:      DefaultGracePeriod,
		Margin:           DefaultMargin,
		PollInterval:     DefaultPollInterval,
	}
}

// Validate returns an error for negative durations, and for a grace period or poll interval that is not positive.
func (c Config) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"termination drain", c.TerminationDrain},
		{"minimum drain", c.MinimumDrain},
		{"quiet time", c.QuietTime},
		{"idle grace", c.IdleGrace},
		{"last-call margin", c.Margin},
		{"deadline", c.Deadline},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %v: must not be negative", d.name, d.value))
		}
	}
	if c.GracePeriod <= 0 {
		errs = append(errs, fmt.Errorf("grace period is %v: must be positive", c.GracePeriod))
	}
	if c.PollInterval <= 0 {
		errs = append(errs, fmt.Errorf("poll interval is %v: must be positive", c.PollInterval))
	}
	return errors.Join(errs...)
}

// Contradictions describes timers that contradict each other, for the log at start-up. They are not errors: in
// ExitOnZero the deadline wins.
func (c Config) Contradictions() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch c.Mode {
	case Fixed:
		if c.TerminationDrain >= c.GracePeriod {
			add("terminationDrainDuration %v is not shorter than the grace period %v: SIGKILL comes first; "+
				"raise terminationGracePeriodSeconds or lower terminationDrainDuration", c.TerminationDrain, c.GracePeriod)
		}
	case IstioExitOnZero:
		if c.MinimumDrain >= c.GracePeriod {
			add("MINIMUM_DRAIN_DURATION %v is not shorter than the grace period %v: SIGKILL comes first; "+
				"raise terminationGracePeriodSeconds or lower MINIMUM_DRAIN_DURATION", c.MinimumDrain, c.GracePeriod)
		}
	case ExitOnZero:
		if c.MinimumDrain > c.LastCallAfter() {
			add("MINIMUM_DRAIN_DURATION %v is longer than the %v until the last call (grace period %v less the margin %v): "+
				"the drain is cut short there; raise terminationGracePeriodSeconds or lower MINIMUM_DRAIN_DURATION",
				c.MinimumDrain, c.LastCallAfter(), c.GracePeriod, c.margin())
		}
		if c.Margin == 0 {
			add("the last-call margin is 0s: the last call comes at the moment of SIGKILL, and nothing can end in an orderly way; the default is %v", DefaultMargin)
		}
		if c.Margin > c.margin() {
			add("the last-call margin %v is more than a quarter of the grace period %v: using %v", c.Margin, c.GracePeriod,
				c.margin())
		}
	}
	return out
}

// margin is the Margin in force, which leaves most of a short grace period to the drain.
func (c Config) margin() time.Duration { return min(c.Margin, c.GracePeriod/4) }

// LastCallAfter is the time from the start to the last call.
func (c Config) LastCallAfter() time.Duration {
	if c.Deadline > 0 {
		return min(c.Deadline, c.GracePeriod)
	}
	return c.GracePeriod - c.margin()
}

// Limit is how long a termination may last before the remaining requests are ended, or the fixed time. Istio's
// exit-on-zero has no limit.
func (c Config) Limit() (limit time.Duration, isLimited bool) {
	switch c.Mode {
	case ExitOnZero:
		return c.LastCallAfter(), true
	case Fixed:
		return c.TerminationDrain, true
	}
	return 0, false
}

// AtOnce is the configuration after Ctrl-C: no load balancer has to learn of the end, so nothing is waited for but the
// requests in flight.
func (c Config) AtOnce() Config {
	c.MinimumDrain, c.QuietTime, c.IdleGrace = 0, 0, 0
	return c
}

// DrainCap is how long the draining phase may last, from the start: a client that keeps connecting must not hold the
// pod.
func (c Config) DrainCap() time.Duration {
	return min(max(c.MinimumDrain, c.GracePeriod/3), c.LastCallAfter())
}
