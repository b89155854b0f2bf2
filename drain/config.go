package drain

import (
	"errors"
	"fmt"
	"time"
)

// Mode chooses what ends the data plane.
type Mode int

const (
	// ExitOnZero is lastcall's own way: leave when nothing is busy and nobody
	// comes any more, always before the deadline.
	ExitOnZero Mode = iota

	// IstioExitOnZero is pilot-agent's EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true:
	// sleep the minimum drain, then look once a second until no connection is
	// open. It knows no deadline.
	IstioExitOnZero

	// Fixed is pilot-agent's default: sleep TerminationDrain, then kill.
	Fixed
)

func (m Mode) String() string {
	switch m {
	case ExitOnZero:
		return "exit-on-zero"
	case IstioExitOnZero:
		return "istio-exit-on-zero"
	case Fixed:
		return "fixed"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// Defaults. Istio's are pilot-agent's of 1.31; the others are lastcall's own.
const (
	DefaultTerminationDrain = 5 * time.Second        // ProxyConfig.terminationDrainDuration
	DefaultMinimumDrain     = 5 * time.Second        // MINIMUM_DRAIN_DURATION
	DefaultQuietTime        = 2 * time.Second        // as kube-proxy and load balancers need to learn of an endpoint's end
	DefaultIdleGrace        = 2 * time.Second        // an idle keep-alive connection is closed after this
	DefaultGracePeriod      = 30 * time.Second       // Kubernetes' terminationGracePeriodSeconds
	DefaultMargin           = 2 * time.Second        // last call before the kubelet's SIGKILL
	DefaultPollInterval     = 100 * time.Millisecond // for data planes that cannot push
	istioPollInterval       = time.Second            // pilot-agent's activeConnectionCheckDelay
	istioMaxRetries         = 5                      // pilot-agent's limit of failed looks
	callTimeout             = 2 * time.Second        // one call of the data plane that has no deadline of its own
)

// Config is what a termination goes by. The zero value of a duration means
// zero, not its default; start from DefaultConfig.
type Config struct {
	Mode Mode

	// TerminationDrain is how long Fixed waits (terminationDrainDuration).
	TerminationDrain time.Duration

	// MinimumDrain is how long new connections are awaited at least.
	MinimumDrain time.Duration

	// QuietTime is how long nobody may have come before the drain ends. It
	// extends the minimum drain, up to QuietCap.
	QuietTime time.Duration

	// QuietCap bounds what the quiet time extends the drain to, from the start.
	// Zero is a third of the grace period: a caller that never learns must not hold
	// the pod. A gateway whose load balancer learns late may want more.
	QuietCap time.Duration

	// ExitAt is how many busy connections do not hold the exit: they get the last
	// call at once when no more than these are left. Zero waits for all.
	ExitAt int

	// IdleGrace is how long a kept-alive connection may be idle, after the
	// minimum drain, before it is closed.
	IdleGrace time.Duration

	// GracePeriod is the pod's terminationGracePeriodSeconds: SIGKILL comes
	// this long after the termination began.
	GracePeriod time.Duration

	// Margin is how long before SIGKILL the last call is made. At most a
	// quarter of the grace period is taken.
	Margin time.Duration

	// PollInterval is how often a data plane without Changes is looked at.
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

// Validate says what cannot work: negative durations, no grace period, no poll
// interval.
func (c Config) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"termination drain", c.TerminationDrain},
		{"minimum drain", c.MinimumDrain},
		{"quiet time", c.QuietTime},
		{"cap of the quiet time", c.QuietCap},
		{"idle grace", c.IdleGrace},
		{"last-call margin", c.Margin},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %v: must not be negative", d.name, d.value))
		}
	}
	if c.ExitAt < 0 {
		errs = append(errs, fmt.Errorf("connections to exit at is %d: must not be negative", c.ExitAt))
	}
	if c.GracePeriod <= 0 {
		errs = append(errs, fmt.Errorf("grace period is %v: must be positive", c.GracePeriod))
	}
	if c.PollInterval <= 0 {
		errs = append(errs, fmt.Errorf("poll interval is %v: must be positive", c.PollInterval))
	}
	return errors.Join(errs...)
}

// Contradictions lists the timers that do not fit together, in words for the
// log at start-up. They are no errors: the deadline wins in ExitOnZero.
func (c Config) Contradictions() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch c.Mode {
	case Fixed:
		if c.TerminationDrain >= c.GracePeriod {
			say("terminationDrainDuration %v is not shorter than the grace period %v: SIGKILL comes first; raise terminationGracePeriodSeconds or lower terminationDrainDuration", c.TerminationDrain, c.GracePeriod)
		}
	case IstioExitOnZero:
		if c.MinimumDrain >= c.GracePeriod {
			say("MINIMUM_DRAIN_DURATION %v is not shorter than the grace period %v: SIGKILL comes first; raise terminationGracePeriodSeconds or lower MINIMUM_DRAIN_DURATION", c.MinimumDrain, c.GracePeriod)
		}
	case ExitOnZero:
		if c.MinimumDrain > c.lastCallAfter() {
			say("MINIMUM_DRAIN_DURATION %v is longer than the %v until the last call (grace period %v less the margin %v): the drain is cut short there; raise terminationGracePeriodSeconds or lower MINIMUM_DRAIN_DURATION", c.MinimumDrain, c.lastCallAfter(), c.GracePeriod, c.margin())
		}
		if c.Margin == 0 {
			say("the last-call margin is 0s: the last call comes at the moment of SIGKILL, and nothing can end politely; the default is %v", DefaultMargin)
		}
		if c.Margin > c.margin() {
			say("the last-call margin %v is more than a quarter of the grace period %v: %v is taken", c.Margin, c.GracePeriod, c.margin())
		}
	}
	return out
}

// margin is the Margin in force: a short grace period is not eaten up by it.
func (c Config) margin() time.Duration { return min(c.Margin, c.GracePeriod/4) }

// lastCallAfter is when the last call is made, from the start.
func (c Config) lastCallAfter() time.Duration { return c.GracePeriod - c.margin() }

// Limit is how long a termination may last before the remaining requests are ended, or the fixed time. Istio's
// exit-on-zero has no limit.
func (c Config) Limit() (limit time.Duration, isLimited bool) {
	switch c.Mode {
	case ExitOnZero:
		return c.lastCallAfter(), true
	case Fixed:
		return c.TerminationDrain, true
	}
	return 0, false
}

// drainCap is how long the quiet time may extend the minimum drain, from the
// start: a caller that never learns must not hold the pod.
func (c Config) drainCap() time.Duration {
	most := c.QuietCap
	if most == 0 {
		most = c.GracePeriod / 3
	}
	return min(max(c.MinimumDrain, most), c.lastCallAfter())
}
