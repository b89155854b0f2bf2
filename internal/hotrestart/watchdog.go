package hotrestart

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"time"
)

// WatchdogTime is the unit's WatchdogSec, after which the service manager kills a silent service; 0 when it does not
// watch this process. In a process that has taken over, WATCHDOG_PID still names the first one.
func WatchdogTime(tookOver bool) time.Duration {
	µs, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || µs <= 0 {
		return 0
	}
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) && !tookOver {
		return 0
	}
	return time.Duration(µs) * time.Microsecond
}

// Watch notifies the service manager, four times in each period within, that the service is alive, if alive returns
// nil, until ctx ends. Four times, so that neither one late check nor the change to a successor looks like a failure.
func (n *Notifier) Watch(ctx context.Context, within time.Duration, alive func(context.Context) error, log *slog.Logger) {
	if n == nil || within <= 0 {
		return
	}
	tick := time.NewTicker(within / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		looking, cancel := context.WithTimeout(ctx, within/4)
		err := alive(looking)
		cancel()
		if err == nil {
			err = n.send("WATCHDOG=1")
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("watchdog check failed, not notifying systemd", "error", err, "killed_after", within)
		}
	}
}
