// Package process starts, ends and reaps the processes of a container.
//
// At any point in time each child has exactly one waiter: its own. All other processes that die below a PID 1 (orphans
// of the app, of hooks) are reaped by Reap, which ignores children with a waiter.
package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Child is a process that this process has started.
type Child struct {
	cmd  *exec.Cmd
	done chan struct{}
	code int
}

// owned are the processes that have a waiter; see Reap.
var owned = struct {
	sync.Mutex
	pids   map[int]bool
	waited chan struct{} // a waiter has reaped its child
}{pids: make(map[int]bool), waited: make(chan struct{}, 1)}

// Start runs a program. It leads a process group of its own, so that a signal for this process (Ctrl-C, a node's
// shutdown) does not reach it directly, and it does not outlive this process: the kernel then sends it SIGKILL.
func Start(cmd *exec.Cmd) (*Child, error) {
	cmd.SysProcAttr = cmp.Or(cmd.SysProcAttr, &syscall.SysProcAttr{})
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	c := &Child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Pdeathsig is tied to the thread that forked (prctl(2)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		owned.Lock()
		err := cmd.Start()
		if err == nil {
			owned.pids[cmd.Process.Pid] = true
		}
		owned.Unlock()
		started <- err
		if err != nil {
			return
		}
		c.code = codeOf(cmd.Wait())
		owned.Lock()
		delete(owned.pids, cmd.Process.Pid)
		owned.Unlock()
		select {
		case owned.waited <- struct{}{}:
		default:
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return c, nil
}

// SignalCode is the exit code, as in a shell, of a process that a signal ended.
func SignalCode(s syscall.Signal) int { return 128 + int(s) }

// codeOf is the exit code as in a shell.
func codeOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return SignalCode(status.Signal())
		}
		return exit.ExitCode()
	}
	return 1
}

// Pid is the process's number.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the process has exited and was reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Code is the exit code, or SignalCode. It is valid after Done.
func (c *Child) Code() int { return c.code }

// HasExited reports whether the process has exited: its number may belong to another one by now.
func (c *Child) HasExited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process alone.
func (c *Child) Signal(s os.Signal) error {
	err := c.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill ends the process and its whole group at once.
func (c *Child) Kill() {
	if !c.HasExited() || len(c.Group()) > 0 {
		_ = syscall.Kill(-c.Pid(), syscall.SIGKILL)
	}
}

// Stat are the fields of /proc/PID/stat from the state on: the name before may contain anything (proc(5)). It is empty
// when there is no such process.
func Stat(pid int) []string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// Reap reaps the orphans that a PID 1 inherits, until ctx ends, so that they do not accumulate as zombies. It does
// nothing in any other process.
func Reap(ctx context.Context) {
	if os.Getpid() != 1 {
		return
	}
	reap(ctx)
}

func reap(ctx context.Context) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	for {
		for reapOne() {
		}
		select {
		case <-died:
		case <-owned.waited:
		case <-ctx.Done():
			return
		}
	}
}

// pidOf reads si_pid, which x/sys does not export: after three 32-bit fields the union begins at the next
// pointer-aligned offset (asm-generic/siginfo.h).
func pidOf(info *unix.Siginfo) int {
	const offset = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) / unsafe.Sizeof(uintptr(0)) * unsafe.Sizeof(uintptr(0))
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}

// reapOne reaps one dead child that no goroutine waits for. It returns false when there is none at the moment. The
// kernel shows one dead child at a time: if that has a waiter, the next ones are visible after the waiter has reaped
// it.
func reapOne() bool {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return false
	}
	pid := pidOf(&info)
	if pid == 0 {
		return false
	}
	owned.Lock()
	defer owned.Unlock()
	if owned.pids[pid] {
		return false
	}
	_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return err == nil
}
