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
)

// Process is a started process: a container's PID 1, or a tool.
type Process struct {
	cmd  *exec.Cmd
	stop syscall.Signal
	done chan struct{} // closed when reaped

	mu     sync.Mutex // guards reaped and below, and signals against it
	reaped bool
	below  []*os.Process // the descendants when it was signalled

	ended time.Time // written before done is closed
}

// wait reaps the process. It kills the rest of its group before, while the group's number cannot be reused, and the
// descendants that have left the group, as PHP-FPM's master does: a container's PID namespace ends with its PID 1.
func (p *Process) wait() {
	awaitExit(p.PID())
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

// Ended is when wait4 returned. It waits for Done.
func (p *Process) Ended() time.Time {
	<-p.done
	return p.ended
}

// Ending is how the process ended: "exit 0", "exit 2", "SIGKILL". It waits for Done.
func (p *Process) Ending() string {
	<-p.done
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalName(status.Signal())
	}
	return fmt.Sprintf("exit %d", p.cmd.ProcessState.ExitCode())
}

// Terminate sends SIGTERM, or its Command's StopSignal, to the process alone, as a runtime does to PID 1, unless it has ended.
func (p *Process) Terminate() error { return p.signal(p.PID(), p.stop) }

// Kill sends SIGKILL to the whole group.
func (p *Process) Kill() error { return p.signal(-p.PID(), syscall.SIGKILL) }

func (p *Process) signal(pid int, s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	p.below = append(p.below, descendants(p.PID())...)
	if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("send %s to %s (%d): %w", signalName(s), p.cmd.Path, p.PID(), err)
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
