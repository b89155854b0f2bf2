package node

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a started process: a container's PID 1, or a tool.
type Process struct {
	cmd  *exec.Cmd
	stop syscall.Signal
	init Init
	done chan struct{} // closed when reaped

	mu      sync.Mutex // guards the fields below, and signals against reaped
	reaped  bool
	below   []*os.Process // the descendants when it was signalled
	stopped bool          // Terminate was called
	ignored bool          // Ignored's
	program string

	ended time.Time // written before done is closed
}

// wait reaps the process. It kills the rest of its group before, while the group's number cannot be reused, and the
// descendants that have left the group, as PHP-FPM's master does: a PID namespace, where there is one, ends with its
// PID 1.
func (p *Process) wait() {
	// Until the child is reaped, its number and its group's are not reused.
	for unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	p.reaped = true
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	for _, d := range p.below {
		_ = d.Kill()
		_ = d.Release()
	}
	p.mu.Unlock()
	_ = p.cmd.Wait() // ProcessState has the result
	p.ended = time.Now()
}

// PID is the number of the process and of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and is reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// HasEnded reports whether Done is closed.
func (p *Process) HasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Ended is when wait4 returned. It waits for Done.
func (p *Process) Ended() time.Time {
	<-p.done
	return p.ended
}

// Ending is how the process ended: "exit 0", "exit 2", "SIGKILL". It waits for Done.
func (p *Process) Ending() string {
	<-p.done
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit %d", p.cmd.ProcessState.ExitCode())
}

// Terminate sends SIGTERM, or its Command's StopSignal, to the process alone, as a runtime does to PID 1, unless it has
// ended. The kernel drops it for a PID 1 without a handler; Terminate does so for one that is imitated.
func (p *Process) Terminate() error {
	if p.init != NoInit {
		handled, program := handlers(p.PID(), p.stop)
		p.mu.Lock()
		p.stopped, p.ignored, p.program = true, !handled && !p.reaped, program
		p.mu.Unlock()
		if !handled && p.init == Imitated {
			return nil
		}
	}
	return p.signal(p.PID(), p.stop)
}

// Kill sends SIGKILL to the whole group.
func (p *Process) Kill() error {
	p.recheck()
	return p.signal(-p.PID(), syscall.SIGKILL)
}

// recheck notes that a program whose only handler has restored the default and sent the signal again, as Node's own one
// does, ignores it as PID 1: it has no handler any longer, and still listens.
func (p *Process) recheck() {
	p.mu.Lock()
	unsure := p.stopped && !p.ignored && !p.reaped
	p.mu.Unlock()
	if !unsure {
		return
	}
	if handled, _ := handlers(p.PID(), p.stop); !handled {
		listening, err := p.Listening()
		p.mu.Lock()
		p.ignored = err == nil && listening > 0
		p.mu.Unlock()
	}
}

func (p *Process) signal(pid int, s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	p.below = append(p.below, descendants(p.PID())...)
	if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("send %s to %s (%d): %w", unix.SignalName(s), p.cmd.Path, p.PID(), err)
	}
	return nil
}

// descendants are the processes below pid. Each holds a pidfd: its number may be reused.
func descendants(pid int) (all []*os.Process) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, file := range files {
		text, _ := os.ReadFile(file) // it may have ended
		for number := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(number)
			if err != nil {
				continue
			}
			if d, err := os.FindProcess(child); err == nil {
				all = append(append(all, d), descendants(child)...)
			}
		}
	}
	return all
}

// KillNamed kills the processes that were started by a path. In a container they end with its PID namespace; here a
// process that has left its group would stay.
func KillNamed(path string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(line, []byte(path+"\x00")) {
			continue // it has ended, or is another
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
