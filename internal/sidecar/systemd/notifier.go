// Package systemd notifies systemd, or another service manager, of a service's state (sd_notify(3)): that it serves or
// stops, and, as a watchdog, that it still responds.
package systemd

import (
	"context"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Notifier notifies the service manager by datagrams of NAME=value lines. A nil one does nothing.
type Notifier struct {
	address  string        // of a datagram socket; @ begins an abstract one
	watchdog time.Duration // after which the service manager kills a silent service; 0: never
	log      *slog.Logger
}

// FromEnvironment is the notifier for NOTIFY_SOCKET; nil when that is not set, or is not a path (vsock).
func FromEnvironment(log *slog.Logger) *Notifier {
	address := os.Getenv("NOTIFY_SOCKET")
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return nil
	}
	return &Notifier{address: address, watchdog: watchdogTime(), log: log}
}

// watchdogTime is the unit's WatchdogSec; 0 when the service manager does not watch this process.
func watchdogTime() time.Duration {
	µs, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || µs <= 0 || µs > math.MaxInt64/1000 {
		return 0
	}
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(µs) * time.Microsecond
}

// variables are for the service itself and not for its children.
var variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}

// AppEnviron is env without the variables of the service manager: an app that knows the protocol must not respond
// instead of us.
func AppEnviron(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(variables, name)
	})
}

// Ready reports that the service serves.
func (n *Notifier) Ready() { n.send("READY=1", "STATUS=serving") }

// Stopping reports that the service stops.
func (n *Notifier) Stopping() { n.send("STOPPING=1", "STATUS=draining") }

func (n *Notifier) send(lines ...string) {
	if n == nil {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // its queue may be full
		_, err = conn.Write([]byte(strings.Join(lines, "\n")))
	}
	if err != nil {
		n.log.Warn("cannot notify the service manager", "of", lines[0], "at", n.address, "error", err)
	}
}

// Watch notifies the service manager that the service is alive, if alive returns nil, until ctx ends: four times in
// each period, so that one late check does not look like a failure.
func (n *Notifier) Watch(ctx context.Context, alive func(context.Context) error) {
	if n == nil || n.watchdog == 0 {
		return
	}
	tick := time.NewTicker(n.watchdog / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		looking, cancel := context.WithTimeout(ctx, n.watchdog/4)
		err := alive(looking)
		cancel()
		switch {
		case err == nil:
			n.send("WATCHDOG=1")
		case ctx.Err() == nil:
			n.log.Warn("watchdog check failed, not notifying systemd", "error", err, "killed_after", n.watchdog)
		}
	}
}
