package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// namespaceOf is the path of a process's network namespace for Open: "" when that is this process's own. It fails when
// the process is not there, or its sockets may not be read.
func namespaceOf(pid int) (string, error) {
	folder := "/proc/" + strconv.Itoa(pid)
	if err := sockdiag.AddInodes(make(map[uint32]bool), folder); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("process %d: no such process", pid)
		}
		return "", fmt.Errorf("process %d: %w; run as its user or as root", pid, err)
	}
	own, err1 := os.Readlink("/proc/thread-self/ns/net")
	its, err2 := os.Readlink(folder + "/ns/net")
	if err := errors.Join(err1, err2); err != nil {
		return "", fmt.Errorf("process %d: find its network namespace: %w", pid, err)
	}
	if own == its {
		return "", nil
	}
	return folder + "/ns/net", nil
}

// ofUnit is the main process of a systemd unit.
func ofUnit(ctx context.Context, unit string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=MainPID", "--value", "--", unit).Output()
	if err != nil {
		return 0, fmt.Errorf("unit %s: systemctl show: %w", unit, err)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(out)))
	if err != nil || pid == 0 {
		return 0, fmt.Errorf("unit %s: it has no main process; is it running?", unit)
	}
	return pid, nil
}

// ofContainer is the first process of a container, by its ID or the beginning of it, of any runtime: the process in a
// control group of that name whose parent is in another one.
func ofContainer(id string) (int, error) {
	if len(id) < 8 || strings.Trim(id, "0123456789abcdef") != "" {
		return 0, fmt.Errorf("container %q: must be at least 8 hexadecimal digits of its ID", id)
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	var in []int
	for _, file := range files {
		b, err := os.ReadFile(file)
		if pid, _ := strconv.Atoi(strings.Split(file, "/")[2]); err == nil && inGroup(string(b), id) {
			in = append(in, pid)
		}
	}
	for _, pid := range in {
		if stat := process.Stat(pid); len(stat) > 1 {
			if parent, err := strconv.Atoi(stat[1]); err == nil && !slices.Contains(in, parent) {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("container %s: no process on this machine is in its control group", id)
}

// inGroup reports whether one of the names in a /proc/PID/cgroup is the container's: ID, docker-ID.scope,
// cri-containerd-ID.scope and their like.
func inGroup(cgroup, id string) bool {
	isBetween := func(r rune) bool { return strings.ContainsRune("/-:.\n", r) }
	return slices.ContainsFunc(strings.FieldsFunc(cgroup, isBetween),
		func(name string) bool { return strings.HasPrefix(name, id) })
}

// awaitProcess returns a channel that is closed when a process has exited, or when ctx has ended.
func awaitProcess(ctx context.Context, pid int) (<-chan struct{}, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	file, done := os.NewFile(uintptr(fd), "pidfd"), make(chan struct{})
	go func() {
		defer close(done)
		defer file.Close()
		_ = process.AwaitExit(ctx, file)
	}()
	return done, nil
}
