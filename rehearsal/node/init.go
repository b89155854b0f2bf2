package node

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Init is how a process is PID 1 of a container. The kernel drops a signal for PID 1 of a PID namespace that has no
// handler for it, except SIGKILL: such a program runs until the end of the grace period.
type Init string

// The kinds.
const (
	NoInit    Init = ""          // a tool, or the built-in app
	Namespace Init = "namespace" // PID 1 of a PID namespace of its own, with a /proc of its own where that is permitted
	Imitated  Init = "imitated"  // no PID 1: this machine permits no PID namespaces. Terminate follows the kernel's rule.
)

// way is one kind of start.
type way struct {
	attributes *syscall.SysProcAttr
	init       Init
}

// Init is how the process is PID 1.
func (p *Process) Init() Init { return p.init }

// Ignored is the program of a PID 1 that ignored its stop signal; empty if it did not. It is a shell that has not
// replaced itself, or the app. It had no handler when Terminate sent the signal, or has none at Kill and still listens.
func (p *Process) Ignored() (program string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ignored {
		return ""
	}
	return p.program
}

// IgnoredCause is why a program, Ignored's, did not end at its stop signal, and how it would.
func IgnoredCause(program string, stop syscall.Signal) string {
	signal := unix.SignalName(stop)
	if slices.Contains([]string{"sh", "bash", "dash", "ash"}, program) {
		return fmt.Sprintf("%s is PID 1 and does not pass %s on, so the app runs until SIGKILL: start the app with exec, "+
			"as sh -c 'exec …', or by an init such as tini", program, signal)
	}
	return fmt.Sprintf("%s ignores %s: PID 1 of a container gets only the signals that it handles, and so it runs until "+
		"SIGKILL. Handle %s: finish the requests, then exit. A longer grace period does not help, and with an init such as "+
		"tini the app would end at once", program, signal, signal)
}
