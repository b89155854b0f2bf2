// Package signals receives the signals of a program that drains: those that stop it, restart it and reload its
// certificates.
package signals

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

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
