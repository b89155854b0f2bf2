package hook

import (
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// DefaultLeave is the part of the grace period that is left to the app after its SIGTERM: of 30 s, 25 s for its clients
// and 5 s for itself, as in Istio's ambient mode. At most a quarter of the grace period is taken.
const DefaultLeave = 5 * time.Second

// Until sets the deadline of a configuration: leave before the end of the grace period.
func Until(c drain.Config, leave time.Duration) drain.Config {
	c.Mode, c.Margin = drain.ExitOnZero, leave
	return c
}

// Within sets the deadline of a configuration to timeout after the start; timeout must be positive.
func Within(c drain.Config, timeout time.Duration) drain.Config {
	c.Mode, c.Margin = drain.ExitOnZero, timeout/3 // a quarter of the whole takes effect
	c.GracePeriod = timeout + c.Margin
	return c
}

// Deadline is the time from the start to the end of a configuration of Until or Within.
func Deadline(c drain.Config) time.Duration { return c.GracePeriod - min(c.Margin, c.GracePeriod/4) }
