package observe

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// process is the main process of a container, or the sandbox of a pod: its parent is outside of the container.
type process struct {
	pid       int
	container string // the container's ID
}

// groupName finds the pod's UID and the container's ID in a line of /proc/PID/cgroup, with the kubelet's systemd driver
// (kubepods-burstable-pod1234_….slice/cri-containerd-ID.scope) and its cgroupfs driver (kubepods/burstable/pod1234-…/ID).
// The UID of a static pod has no dashes.
var groupName = regexp.MustCompile(`pod([0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12})(?:\.slice)?/(?:[a-z-]+-)?([0-9a-f]{64})`)

// ownerOf is the pod and the container of a process, from the text of its cgroup file.
func ownerOf(cgroup []byte) (uid types.UID, container string, ok bool) {
	if !bytes.Contains(cgroup, []byte("pod")) {
		return "", "", false
	}
	m := groupName.FindSubmatch(cgroup)
	if m == nil {
		return "", "", false
	}
	return types.UID(strings.ReplaceAll(string(m[1]), "_", "-")), string(m[2]), true
}

// scan finds the main processes of all pods of the node. It reads one small file for each process of the node: 10 ms for
// 1,000 of them.
func scan(proc string) (map[types.UID][]process, error) {
	folder, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("list the node's processes: %w", err)
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the node's processes: %w", err)
	}
	type member struct {
		process
		uid types.UID
	}
	found := map[int]member{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, name, "cgroup"))
		if err != nil {
			continue // it has exited
		}
		if uid, container, ok := ownerOf(text); ok {
			found[pid] = member{process{pid, container}, uid}
		}
	}
	out := map[types.UID][]process{}
	for pid, m := range found {
		if parent, ok := found[parentOf(proc, pid)]; ok && parent.container == m.container {
			continue
		}
		out[m.uid] = append(out[m.uid], m.process)
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b process) int { return a.pid - b.pid })
	}
	return out, nil
}

// parentOf is the parent of a process, or 0.
func parentOf(proc string, pid int) int {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" ")) // the name may contain anything
	fields := bytes.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// handle is an open process: its number cannot be reused unnoticed.
type handle struct {
	process
	file *os.File
}

// open returns nil if the process has exited, or its number is that of another.
func (p process) open(proc string) (*handle, error) {
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err == unix.ESRCH {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", p.pid, err)
	}
	h := &handle{p, os.NewFile(uintptr(fd), "pidfd")}
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(p.pid), "cgroup"))
	if _, container, _ := ownerOf(text); err != nil || container != p.container {
		_ = h.file.Close()
		return nil, nil
	}
	return h, nil
}

// wait returns when the process has exited, or with ctx's error. It holds no thread.
func (h *handle) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = h.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err != unix.EINTR && n != 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (h *handle) close() { _ = h.file.Close() }
