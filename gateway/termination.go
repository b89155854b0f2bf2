package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Termination sets how a gateway ends. Start from Preset.Termination.
type Termination struct {
	// GracePeriod is the pod's terminationGracePeriodSeconds.
	GracePeriod time.Duration

	// DrainTimeout is the time from SIGTERM to the last call. Zero means the grace period less a margin of two
	// seconds.
	DrainTimeout time.Duration

	// MinDrain is the shortest time for which new connections are accepted.
	MinDrain time.Duration

	// QuietTime is how long no connection or request may have arrived before the listeners are closed. It extends
	// MinDrain, up to a third of the time until the last call.
	QuietTime time.Duration

	// Patient raises that limit to two thirds.
	Patient bool

	// IdleGrace is how long a kept-alive connection may be idle afterwards before it is closed.
	IdleGrace time.Duration

	// ExitAt is how many busy connections do not delay the exit.
	ExitAt int

	// FailReadinessAfter is the time from SIGTERM until /ready fails. If it is negative, /ready fails when the
	// listeners are closed.
	FailReadinessAfter time.Duration
}

// Never is a value of FailReadinessAfter.
const Never time.Duration = -1

// Config returns the configuration of the drain. The error lists invalid and contradictory values by their flags.
func (t Termination) Config() (drain.Config, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--drain-timeout", t.DrainTimeout}, {"--minimum-drain", t.MinDrain},
		{"--quiet-time", t.QuietTime}, {"--idle-grace", t.IdleGrace},
	} {
		if d.value < 0 {
			wrong("%s is %v: must not be negative", d.flag, d.value)
		}
	}
	if t.ExitAt < 0 {
		wrong("--exit-at-connections is %d: must not be negative", t.ExitAt)
	}
	if t.GracePeriod < time.Second {
		wrong("--grace is %v: must be the pod's terminationGracePeriodSeconds, at least 1s", t.GracePeriod)
	}
	if len(errs) > 0 {
		return drain.Config{}, errors.Join(errs...)
	}

	const remedy = "raise terminationGracePeriodSeconds, and --grace or TERMINATION_GRACE_PERIOD_SECONDS with it"
	timeout := t.DrainTimeout
	switch {
	case timeout == 0:
		timeout = t.GracePeriod - min(drain.DefaultMargin, t.GracePeriod/4)
	case timeout >= t.GracePeriod:
		wrong("--drain-timeout %v is not shorter than the grace period %v: SIGKILL comes first; lower it, or %s", timeout, t.GracePeriod, remedy)
	}
	if t.MinDrain > timeout {
		wrong("--minimum-drain %v is longer than the %v until the last call (grace period %v): lower it or raise --drain-timeout, or %s", t.MinDrain, timeout, t.GracePeriod, remedy)
	}
	if t.FailReadinessAfter > timeout {
		wrong("--health-check-failure-delay %v is longer than the %v until the last call: readiness would never fail; lower or omit it", t.FailReadinessAfter, timeout)
	}
	if len(errs) > 0 {
		return drain.Config{}, errors.Join(errs...)
	}

	c := drain.DefaultConfig()
	c.MinimumDrain, c.QuietTime, c.IdleGrace, c.ExitAt = t.MinDrain, t.QuietTime, t.IdleGrace, t.ExitAt
	c.QuietCap = timeout / 3
	if t.Patient {
		c.QuietCap = timeout * 2 / 3
	}
	// drain makes the last call a margin before the end of its grace period, and the margin is at most a quarter of
	// that.
	c.Margin = min(drain.DefaultMargin, timeout/3, t.GracePeriod-timeout)
	c.GracePeriod = timeout + c.Margin
	return c, nil
}
