package hotrestart

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Notifier notifies the service manager by datagrams of NAME=value lines. A nil one does nothing.
type Notifier struct {
	address string // of a datagram socket; @ begins an abstract one
	muted   atomic.Bool
}

// NotifierFromEnvironment is the notifier for NOTIFY_SOCKET; nil when that is not set, or is not a path (vsock).
func NotifierFromEnvironment() *Notifier {
	address := os.Getenv("NOTIFY_SOCKET")
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return nil
	}
	return &Notifier{address: address}
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

// Ready reports that the service serves, or serves again after Reloading.
func (n *Notifier) Ready(status string) error {
	return n.send("READY=1", "STATUS="+status)
}

// Reloading reports that a successor is being started; Ready or HandedOver ends it.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the monotonic clock: %w", err)
	}
	return n.send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)),
		"STATUS=starting a successor")
}

// HandedOver reports that another process serves and sends all further notifications (NotifyAccess=all); this notifier
// becomes silent. It does not send MAINPID: the service manager would not wait for the exit of a process that is not
// yet its child; it reads the pid file once it is.
func (n *Notifier) HandedOver(pid int) error {
	if n == nil {
		return nil
	}
	// The watchdog's timer restarts for the successor.
	err := n.send("READY=1", "WATCHDOG=1", fmt.Sprintf("STATUS=serving (pid %d)", pid))
	n.muted.Store(true)
	return err
}

// Stopping reports that the service stops.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1", "STATUS=draining") }

func (n *Notifier) send(lines ...string) error {
	if n == nil || n.muted.Load() {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // its queue may be full
		_, err = conn.Write([]byte(strings.Join(lines, "\n")))
	}
	if err != nil {
		return fmt.Errorf("notify the service manager of %s at %s: %w", lines[0], n.address, err)
	}
	return nil
}

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
func (n *Notifier) Watch(ctx context.Context, within time.Duration, alive func(context.Context) error,
	log *slog.Logger) {
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
