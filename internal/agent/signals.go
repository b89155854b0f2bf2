package agent

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/drain"
)

const terminate = syscall.SIGTERM

// Stop brings the signals that tell the process to stop. A nil one is SIGTERM.
type Stop struct {
	C     <-chan drain.Signal
	first atomic.Int32 // the signal that came first; 0: none has
}

// DefaultStopSignals are SIGTERM (kubelet, systemd, docker), SIGINT (Ctrl-C), and
// SIGQUIT, which the images of nginx and php-fpm have as their STOPSIGNAL. SIGABRT
// still ends a Go program with the stacks of all goroutines.
var DefaultStopSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT}

// NotifyStop listens for DefaultStopSignals and more. The second signal makes the
// last call at once, but for SIGHUP: when a terminal is closed, the shell and the
// kernel both send it. end ends the listening.
//
// SIGPIPE is ignored: a reader of our log that has gone must not end us in the
// middle of a drain (signal(7); Go dies of EPIPE on descriptors 1 and 2).
func NotifyStop(more ...syscall.Signal) (s *Stop, end func()) {
	signal.Ignore(syscall.SIGPIPE)
	in := make(chan os.Signal, 4)
	out := make(chan drain.Signal)
	gone, done := make(chan struct{}), make(chan struct{})
	for _, one := range append(DefaultStopSignals[:len(DefaultStopSignals):len(DefaultStopSignals)], more...) {
		signal.Notify(in, one)
	}
	s = &Stop{C: out}
	go func() {
		defer close(done)
		for {
			select {
			case got := <-in:
				sig := got.(syscall.Signal)
				if !s.first.CompareAndSwap(0, int32(sig)) && sig == syscall.SIGHUP {
					continue
				}
				told := drain.Terminate
				if sig == syscall.SIGINT {
					told = drain.Interrupt
				}
				select {
				case out <- told:
				case <-gone:
					return
				}
			case <-gone:
				return
			}
		}
	}()
	return s, func() {
		signal.Stop(in)
		close(gone)
		<-done
	}
}

// name is what came, for log and report.
func (s *Stop) name(told drain.Signal) string {
	if s != nil && told == drain.Terminate {
		if sig := syscall.Signal(s.first.Load()); sig != 0 && sig != syscall.SIGINT {
			return NameOf(sig)
		}
	}
	return told.String()
}

// forApp is what an app is sent that expects what its container's runtime sends: the
// same. From a terminal, and without a signal, it is SIGTERM.
func (s *Stop) forApp() syscall.Signal {
	if s != nil {
		switch sig := syscall.Signal(s.first.Load()); sig {
		case 0, syscall.SIGINT, syscall.SIGHUP:
		default:
			return sig
		}
	}
	return terminate
}

// firstRealTime is SIGRTMIN of the C libraries; the kernel's own is 32.
const firstRealTime = 34

// ParseSignal reads a signal as Dockerfiles and Kubernetes write it: SIGUSR1, USR1,
// 10, SIGRTMIN+3.
func ParseSignal(text string) (syscall.Signal, error) {
	name := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(text)), "SIG")
	sig := unix.SignalNum("SIG" + name)
	if n, err := strconv.Atoi(name); err == nil {
		sig = syscall.Signal(n)
	} else if after, found := strings.CutPrefix(name, "RTMIN"); found {
		n, err := strconv.Atoi("0" + strings.TrimPrefix(after, "+"))
		if sig = 0; err == nil {
			sig = syscall.Signal(firstRealTime + n)
		}
	}
	switch {
	case sig < 1 || sig > 64:
		return 0, fmt.Errorf("signal %q: must be a name or a number, for example SIGUSR1, USR1, 10 or RTMIN+3", text)
	case sig == syscall.SIGKILL || sig == syscall.SIGSTOP:
		return 0, fmt.Errorf("signal %q: no program can catch it", text)
	case sig == syscall.SIGURG || sig == syscall.SIGCHLD || sig == syscall.SIGPIPE:
		return 0, fmt.Errorf("signal %q: lastcall needs it for itself", text)
	}
	return sig, nil
}

// NameOf is a signal's name.
func NameOf(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	if s >= firstRealTime {
		return fmt.Sprintf("SIGRTMIN+%d", s-firstRealTime)
	}
	return fmt.Sprintf("signal %d", int(s))
}

// HasTerminal says whether the process has a controlling terminal, whose end is told
// by SIGHUP.
func HasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}

// RestartSignals brings the wishes for a hot restart, SIGUSR2 and those given; those
// that nothing has taken yet are one. stop ends it.
func RestartSignals(more ...os.Signal) (asked <-chan os.Signal, stop func()) {
	in := make(chan os.Signal, 1)
	signal.Notify(in, append(more, syscall.SIGUSR2)...)
	return in, func() { signal.Stop(in) }
}

// ReloadSignals brings SIGHUP, which tells an agent that is not followed by a
// successor to read its certificates again. stop ends it.
func ReloadSignals() (told <-chan os.Signal, stop func()) {
	in := make(chan os.Signal, 1)
	signal.Notify(in, syscall.SIGHUP)
	return in, func() { signal.Stop(in) }
}
