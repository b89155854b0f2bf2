// Package signals receives the signals of a program that drains: those that stop it, and those that reload its
// certificates.
package signals

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/drain"
)

// DefaultStop are SIGTERM (kubelet, systemd, docker), SIGINT (Ctrl-C) and SIGQUIT, the STOPSIGNAL of the images of
// nginx and php-fpm. SIGABRT still ends a Go program with the stacks of all goroutines.
var DefaultStop = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT}

// Options choose the signals.
type Options struct {
	Stop   []syscall.Signal // in addition to DefaultStop
	Reload []syscall.Signal

	Requests *drain.Requests // gets the stop signals
	Log      *slog.Logger    // gets a line for each signal; nil: none
}

// Received has the signals. Requests for a reload that have not been read yet are one.
type Received struct {
	Reload <-chan struct{}

	first atomic.Int32 // the first stop signal; 0: none yet
}

// First is the signal that stopped the program; 0 if none has.
func (r *Received) First() syscall.Signal { return syscall.Signal(r.first.Load()) }

// Receive listens until end is called; signals that arrived before have been sent on. A second SIGHUP counts for
// nothing: when a terminal is closed, the shell and the kernel both send it.
//
// SIGPIPE is ignored: Go ends a program that writes to a closed descriptor 1 or 2, and a log reader that has ended must
// not end a drain (signal(7)).
func Receive(o Options) (r *Received, end func()) {
	signal.Ignore(syscall.SIGPIPE)
	o.Stop = slices.Concat(DefaultStop, o.Stop)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	in := make(chan os.Signal, 8)
	for _, sig := range slices.Concat(o.Stop, o.Reload) {
		signal.Notify(in, sig)
	}
	reload := make(chan struct{}, 1)
	r = &Received{Reload: reload}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for got := range in {
			switch sig := got.(syscall.Signal); {
			case slices.Contains(o.Stop, sig):
				isFirst := r.first.CompareAndSwap(0, int32(sig))
				meaning := drain.Terminate
				if sig == syscall.SIGINT {
					meaning = drain.Interrupt
				}
				if !isFirst && sig == syscall.SIGHUP || !o.Requests.Send(meaning) {
					o.Log.Info("stop signal ignored: it repeats the first one", "signal", Name(sig))
					continue
				}
				o.Log.Info("stop signal received", "signal", Name(sig))
			default:
				o.Log.Info("reload signal received", "signal", Name(sig))
				select {
				case reload <- struct{}{}:
				default:
				}
			}
		}
	}()
	return r, sync.OnceFunc(func() {
		signal.Stop(in)
		close(in)
		<-done
	})
}

// HasTerminal reports whether the process has a controlling terminal. Closing it sends SIGHUP.
func HasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}

// firstRealTime is SIGRTMIN of the C libraries; the kernel's own is 32.
const firstRealTime = 34

// Parse reads a signal as Dockerfiles and Kubernetes write it: SIGUSR1, USR1, 10, SIGRTMIN+3.
func Parse(text string) (syscall.Signal, error) {
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
		return 0, fmt.Errorf("signal %q: reserved for lastcall itself", text)
	}
	return sig, nil
}

// Name is a signal's name, for example SIGTERM or SIGRTMIN+3.
func Name(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	if s >= firstRealTime {
		return fmt.Sprintf("SIGRTMIN+%d", s-firstRealTime)
	}
	return fmt.Sprintf("signal %d", int(s))
}
