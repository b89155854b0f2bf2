package process

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// Group are the living processes of the child's process group: the child, and descendants that have not left the group.
// No other group can have its number while one of them lives.
func (c *Child) Group() []int {
	var out []int
	if syscall.Kill(-c.Pid(), 0) == syscall.ESRCH {
		return nil
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		const state, group = 0, 2
		stat := Stat(pid)
		if len(stat) > group && stat[group] == strconv.Itoa(c.Pid()) && !strings.Contains("ZX", stat[state]) {
			out = append(out, pid)
		}
	}
	return out
}

// SignalGroup sends a signal to the whole process group.
func (c *Child) SignalGroup(s syscall.Signal) error {
	if err := syscall.Kill(-c.Pid(), s); err != nil && err != syscall.ESRCH {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// groupPoll is how often GroupDone looks: the kernel does not report the end of processes that are not children.
const groupPoll = 20 * time.Millisecond

// GroupDone is closed when no process of the group lives, or ctx has ended.
func (c *Child) GroupDone(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = poll.Until(ctx, groupPoll, func() bool { return len(c.Group()) == 0 })
	}()
	return done
}

// Handles reports whether a process has a handler for a signal, or blocks it for signalfd, by SigCgt and SigBlk of
// proc(5), or is in sigwait: the kernel shows no signal as blocked during that. All are blocked while it forks.
func Handles(pid int, s syscall.Signal) bool {
	call, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/syscall")
	if bytes.HasPrefix(call, []byte(strconv.Itoa(unix.SYS_RT_SIGTIMEDWAIT)+" ")) {
		return true
	}
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return slices.ContainsFunc([]string{"\nSigCgt:", "\nSigBlk:"}, func(name string) bool {
		_, after, _ := bytes.Cut(b, []byte(name))
		line, _, _ := bytes.Cut(after, []byte("\n"))
		mask, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
		forks := mask&(1<<(syscall.SIGSEGV-1)) != 0 && name == "\nSigBlk:"
		return err == nil && mask&(1<<(s-1)) != 0 && !forks
	})
}

// IsPackageManager reports whether a process is a package manager that runs a script: it handles signals, but what it
// passes on reaches the shell that it has started, not what this shell has started.
func IsPackageManager(pid int) bool {
	return isNamed(pid, func(name string) bool {
		switch name, _, _ := strings.Cut(name, "."); strings.TrimSuffix(name, "-cli") {
		case "npm", "npx", "yarn", "pnpm", "bun", "poetry", "pipenv", "uv", "bundle", "composer":
			return true
		}
		return false
	})
}

// ReloadsAtTerm reports whether a process is known to reload at SIGTERM, and to end at SIGINT: uWSGI. With die-on-term
// it ends at both alike.
func ReloadsAtTerm(pid int) bool {
	return isNamed(pid, func(name string) bool { return strings.HasPrefix(name, "uwsgi") })
}

// isNamed reports whether a process is a program by its name, or an interpreter that runs it.
func isNamed(pid int, is func(name string) bool) bool {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	words := strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 || r == ' ' }) // npm writes "npm start" there
	return slices.ContainsFunc(words[:min(2, len(words))], func(word string) bool { return is(filepath.Base(word)) })
}
