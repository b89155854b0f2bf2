package process

import (
	"bytes"
	"cmp"
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
	if syscall.Kill(-c.Pid(), 0) == syscall.ESRCH {
		return nil
	}
	return Group(c.Pid())
}

// Group are the living processes of a process group.
func Group(id int) (out []int) {
	all, _ := living()
	for pid, stat := range all {
		if stat[2] == strconv.Itoa(id) {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// living are the processes that have not ended, with their state, parent, group, …: see Stat.
func living() (map[int][]string, error) {
	entries, err := os.ReadDir("/proc")
	out := make(map[int][]string)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if stat := Stat(pid); len(stat) > 2 && !strings.Contains("ZX", stat[0]) { // else it has ended meanwhile
			out[pid] = stat
		}
	}
	return out, err
}

// AreShared reports whether the pod has shareProcessNamespace, which makes the processes of other containers visible.
func AreShared() bool {
	b, _ := os.ReadFile("/proc/1/comm")
	holdsNamespaces := []string{"pause", "systemd-pause", "catatonit"}
	return os.Getpid() != 1 && slices.Contains(holdsNamespaces, strings.TrimSpace(string(b)))
}

// Others counts the processes other than the pod's pause, this process and its descendants.
func Others() (n int, err error) {
	all, err := living()
	for pid := range all {
		if pid != 1 && !descends(pid, os.Getpid(), all) {
			n++
		}
	}
	return n, err
}

// Family are a process and its descendants.
func Family(pid int) (out []int) {
	all, _ := living()
	for one := range all {
		if descends(one, pid, all) {
			out = append(out, one)
		}
	}
	return out
}

// descends reports whether a process is another one, or its descendant.
func descends(pid, from int, all map[int][]string) bool {
	for range 100 {
		stat := all[pid]
		if pid == from || stat == nil {
			return pid == from
		}
		pid, _ = strconv.Atoi(stat[1])
	}
	return false
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

// AwaitExit returns when the process of a descriptor without blocking (PIDFD_NONBLOCK) has exited, or with ctx's error.
// It holds no thread.
func AwaitExit(ctx context.Context, pidfd *os.File) error {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err != unix.EINTR && n != 0
	})
	return cmp.Or(ctx.Err(), err)
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
	// npm writes "npm start" there.
	words := strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 || r == ' ' })
	return slices.ContainsFunc(words[:min(2, len(words))], func(word string) bool { return is(filepath.Base(word)) })
}

// Image is the program that a process runs.
type Image struct {
	program string // file and arguments
	layout  string // where they are in memory: the kernel chooses other addresses at each execve(2)
}

// ImageOf reads /proc/PID. It is empty when there is no such process, or it may not be read.
func ImageOf(pid int) Image {
	const startCode, startStack, argStart = 26 - 3, 28 - 3, 48 - 3 // proc(5) counts from 1, Stat from the third field
	dir, stat := "/proc/"+strconv.Itoa(pid), Stat(pid)
	file, err := os.Readlink(dir + "/exe")
	if err != nil || len(stat) <= argStart {
		return Image{}
	}
	args, _ := os.ReadFile(dir + "/cmdline")
	return Image{
		program: file + "\x00" + string(args),
		layout:  stat[startCode] + " " + stat[startStack] + " " + stat[argStart],
	}
}

// HasReloaded reports whether a process has run the same program again.
func (i Image) HasReloaded(now Image) bool {
	return i.program != "" && i.program == now.program && i.layout != now.layout
}
