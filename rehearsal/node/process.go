package node

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

// Process is a started process: a container's PID 1, or a tool.
type Process struct {
	cmd  *exec.Cmd
	stop syscall.Signal
	init Init
	done chan struct{} // closed when reaped

	mu      sync.Mutex // guards the fields below, and signals against reaped
	reaped  bool
	below   []*os.Process // with its descendants, when it was signalled
	stopped bool          // Terminate was called
	ignored string        // Ignored's

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

// Init is how the process is PID 1.
func (p *Process) Init() Init { return p.init }

// Done is closed when the process has ended and is reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// HasEnded reports whether Done is closed.
func (p *Process) HasEnded() bool { return hasEnded(p) }

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
		if p.stopped = true; !handled && !p.reaped {
			p.ignored = program
		}
		p.mu.Unlock()
		if !handled && p.init == Imitated {
			return nil
		}
	}
	return p.signal(p.PID(), p.stop)
}

// Ignored is the program of a PID 1 that ignored its stop signal; empty if it did not. It is a shell that has not
// replaced itself, or the app. It had no handler when Terminate sent the signal, or has none at Kill and still listens.
func (p *Process) Ignored() (program string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ignored
}

// IgnoredCause is why a program, Ignored's, did not end at its stop signal, and how it would.
func IgnoredCause(program string, stop syscall.Signal) string {
	signal := unix.SignalName(stop)
	if slices.Contains([]string{"sh", "bash", "dash", "ash"}, program) {
		return fmt.Sprintf("%s is PID 1 and does not pass %s on, so the app runs until SIGKILL: "+
			"start the app with exec, as sh -c 'exec …', or by an init such as tini", program, signal)
	}
	return fmt.Sprintf("%s ignores %s: PID 1 of a container gets only the signals that it handles, "+
		"and so it runs until SIGKILL. Handle %s: finish the requests, then exit. "+
		"A longer grace period does not help, and with an init such as tini the app would end at once",
		program, signal, signal)
}

// handlers reads whether a process handles a signal, and its program's name.
func handlers(pid int, s syscall.Signal) (handled bool, program string) {
	handled = process.Handles(pid, s)
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if stat := process.Stat(pid); len(stat) == 0 || stat[0] == "Z" {
		return true, "" // it has ended
	}
	return handled, strings.TrimSpace(string(name))
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
	unsure := p.stopped && p.ignored == "" && !p.reaped
	p.mu.Unlock()
	if !unsure {
		return
	}
	if handled, program := handlers(p.PID(), p.stop); !handled {
		if listening, err := p.Listening(); err == nil && listening > 0 {
			p.mu.Lock()
			p.ignored = program
			p.mu.Unlock()
		}
	}
}

func (p *Process) signal(pid int, s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	for _, one := range process.Family(p.PID()) {
		if d, err := os.FindProcess(one); err == nil { // it holds a pidfd: the number may be reused
			p.below = append(p.below, d)
		}
	}
	if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("send %s to %s (%d): %w", unix.SignalName(s), p.cmd.Path, p.PID(), err)
	}
	return nil
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

// Within is a command that runs c in the container whose PID 1 p is, as an exec hook: in its namespaces and working
// folder, with the environment that c has. It is c itself if p has no namespaces, or if there is no nsenter
// (util-linux, busybox): a process with several threads, as each of Go's, cannot enter a user namespace.
func (p *Process) Within(c Command) Command {
	if _, err := exec.LookPath("nsenter"); err != nil || p.init != Namespace {
		return c
	}
	enter := []string{"nsenter", "--target", strconv.Itoa(p.PID())}
	if p.cmd.SysProcAttr.Cloneflags&syscall.CLONE_NEWUSER != 0 {
		enter = append(enter, "--user", "--preserve-credentials")
	}
	c.Args = append(append(enter, "--mount", "--pid", "--wd", "--"), c.Args...)
	return c
}

// Listening counts the listening TCP sockets of the processes in p's group, as `netstat -plnt` shows them in a
// container.
func (p *Process) Listening() (int, error) {
	held := sockdiag.Inodes(process.Group(p.PID()))
	all, err := sockets.All(sockdiag.Of(sockdiag.Listen))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range all {
		if held[s.Inode] {
			n++
		}
	}
	return n, nil
}
