package hotrestart

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
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

// The file names the process that serves, and during a hot restart the old one until that has drained. systemd reads it
// (PIDFile=) when the old process exits: by then the named process is systemd's own child. A successor that is
// announced earlier (MAINPID=) is another process's child, "alien" for systemd, which with KillMode=mixed does not wait
// for an alien's exit: SIGKILL follows SIGTERM at once.

func (h *Handover) writePID(pid int) error {
	if h.pidFile == "" {
		return nil
	}
	fresh := h.pidFile + "." + strconv.Itoa(os.Getpid()) // readers see the old number or the new one, never half of it
	err := os.WriteFile(fresh, []byte(strconv.Itoa(pid)+"\n"), 0o644)
	if err == nil {
		err = os.Rename(fresh, h.pidFile)
	}
	if err != nil {
		_ = os.Remove(fresh)
		return fmt.Errorf("write the pid file %s: %w", filepath.Base(h.pidFile), err)
	}
	return nil
}

// RemovePIDFile removes the file if it names this process. It is a process's last act.
func (h *Handover) RemovePIDFile() error {
	if h == nil || h.pidFile == "" {
		return nil
	}
	if pid, err := ReadPIDFile(h.pidFile); err != nil || pid != os.Getpid() {
		return nil // never written, or a successor's
	}
	return os.Remove(h.pidFile)
}

// ReadPIDFile returns the process number in a file of lastcall run --pid-file.
func ReadPIDFile(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the pid file: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s holds %q: must be one process number, as lastcall run --pid-file writes it", file, b)
	}
	return pid, nil
}

// IsAlive reports whether a process is running. A zombie is not.
func IsAlive(pid int) bool {
	fields := process.Stat(pid)
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}
