package hook

import (
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// DefaultLeave is the part of the grace period that is left to the app after its SIGTERM: of 30 s, 25 s for its clients
// and 5 s for itself, as in Istio's ambient mode. At most a quarter of the grace period is taken.
const DefaultLeave = 5 * time.Second

// EnvoyEnd is how long Envoy may take to exit at the end of a sidecar's hook. The hook leaves it of the grace period.
const EnvoyEnd = time.Second

// Until sets the deadline of a configuration: leave before the end of the grace period.
func Until(c drain.Config, leave time.Duration) drain.Config {
	c.Mode, c.HookOnly = drain.ExitOnZero, true
	c.Deadline = drain.Config{GracePeriod: c.GracePeriod, Margin: leave}.LastCallAfter()
	return c
}

// Within sets the deadline of a configuration to timeout after the start; timeout must be positive. SIGKILL is unknown.
func Within(c drain.Config, timeout time.Duration) drain.Config {
	c.Mode, c.HookOnly, c.Deadline, c.GracePeriod = drain.ExitOnZero, true, timeout, timeout+DefaultLeave
	return c
}
