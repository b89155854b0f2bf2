package hotrestart

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Notifier tells the service manager. A nil one tells nobody.
type Notifier struct {
	address string // of a datagram socket; @ begins an abstract one
	muted   atomic.Bool
}

// NotifierFromEnvironment is the notifier for NOTIFY_SOCKET; nil when that is not set, or
// is none that can be reached by a path (vsock).
func NotifierFromEnvironment() *Notifier {
	address := os.Getenv("NOTIFY_SOCKET")
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return nil
	}
	return &Notifier{address: address}
}

// variables that are the service manager's word to us and not to our children.
var variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}

// Environ is env without what the service manager has said to us: an app that
// knows the protocol must not answer in our place.
func AppEnviron(env []string) []string {
	var out []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if name != variables[0] && name != variables[1] && name != variables[2] {
			out = append(out, v)
		}
	}
	return out
}

// Ready says that the service serves, or does so again after Reloading.
func (n *Notifier) Ready(status string) error {
	return n.tell("READY=1", "STATUS="+status)
}

// Reloading says that a successor is being started; Ready or HandedOver ends it.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the monotonic clock: %w", err)
	}
	return n.tell("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)), "STATUS=starting a successor")
}

// HandedOver says that another process serves from now on, and speaks for the
// service (NotifyAccess=all); this one says nothing more. It does not say MAINPID:
// the service manager would not wait for the end of a process that is not its child
// yet, and learns of it from the pid file when it is.
func (n *Notifier) HandedOver(pid int) error {
	if n == nil {
		return nil
	}
	// The watchdog's time begins anew for the successor.
	err := n.tell("READY=1", "WATCHDOG=1", fmt.Sprintf("STATUS=serving (pid %d)", pid))
	n.muted.Store(true)
	return err
}

// Stopping says that the service ends.
func (n *Notifier) Stopping() error { return n.tell("STOPPING=1", "STATUS=draining") }

func (n *Notifier) tell(lines ...string) error {
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
		return fmt.Errorf("tell the service manager %s at %s: %w", lines[0], n.address, err)
	}
	return nil
}
