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
	container string    // the container's ID
	uid       types.UID // the pod's; empty if its cgroup does not name it
	network   string    // names its network namespace; empty if it cannot be read
}

// The names of containers and pods in a line of /proc/PID/cgroup:
// kubepods-burstable-pod1234_….slice/cri-containerd-ID.scope with the kubelet's systemd driver,
// kubepods/burstable/pod1234-…/ID with its cgroupfs driver, and k8s.io/ID with a kubelet that sets no cgroup for pods.
// The UID of a static pod has no dashes.
var (
	containerName = regexp.MustCompile(`[/-]([0-9a-f]{64})(?:\.scope)?(?:/|\n|$)`)
	podName       = regexp.MustCompile(
		`pod([0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12})(?:\.slice)?/`)
)

// ownerOf is the container of a process and, if it is there, the pod, from the text of its cgroup file.
func ownerOf(cgroup []byte) (uid types.UID, container string) {
	m := containerName.FindSubmatch(cgroup)
	if m == nil {
		return "", ""
	}
	if pod := podName.FindSubmatch(cgroup); pod != nil {
		uid = types.UID(strings.ReplaceAll(string(pod[1]), "_", "-"))
	}
	return uid, string(m[1])
}

// read reads a small file of a process into b, at half the cost of os.ReadFile, which registers each file with the
// poller.
func read(b []byte, proc, pid, name string) []byte {
	fd, err := unix.Open(proc+"/"+pid+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // it has exited
	}
	defer func() { _ = unix.Close(fd) }()
	n, _ := unix.Read(fd, b)
	return b[:max(n, 0)]
}

// scan finds the main processes of all containers of the node. It reads one small file for each process of the node: 10
// ms for 1,000 of them.
func scan(proc string) ([]process, error) {
	folder, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("list the node's processes: %w", err)
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the node's processes: %w", err)
	}
	found, b := map[int]process{}, make([]byte, 4096)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if uid, container := ownerOf(read(b, proc, name, "cgroup")); container != "" {
			found[pid] = process{pid: pid, container: container, uid: uid}
		}
	}
	node, _ := os.Readlink(filepath.Join(proc, "1", "ns", "net"))
	var out []process
	for pid, p := range found {
		if parent, ok := found[parentOf(read(b, proc, strconv.Itoa(pid), "stat"))]; ok && parent.container == p.container {
			continue
		}
		p.network, _ = os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns", "net"))
		if node != "" && p.network == node {
			continue // of a pod with the node's network, or runc, which has not entered the pod's namespace yet
		}
		out = append(out, p)
	}
	return out, nil
}

// processesOf are the processes of a pod, the oldest first: those of its containers, and those that share its network
// namespace, such as the sandbox. The pod must not use the node's network.
func processesOf(pod *Pod, all []process) (out []process) {
	network := ""
	isOwn := func(p process) bool {
		return p.uid == pod.UID || slices.ContainsFunc(pod.Containers, func(c Container) bool { return c.ID == p.container })
	}
	if i := slices.IndexFunc(all, func(p process) bool { return p.network != "" && isOwn(p) }); i >= 0 {
		network = all[i].network
	}
	for _, p := range all {
		if network != "" && p.network == network || isOwn(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b process) int { return a.pid - b.pid })
	return out
}

// parentOf is the parent of a process, or 0, from the text of its stat file.
func parentOf(text []byte) int {
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
	file *os.File // nil of one that had exited before
	name string   // of the container that ends with it, if there is one

	exited context.Context // ends with the process, at a moment
	end    context.CancelFunc
	at     time.Time
}

// open opens a process. It has exited, too, if its number is that of another.
func (p process) open(proc string) (*handle, error) {
	h := &handle{process: p}
	h.exited, h.end = context.WithCancel(context.Background())
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err != nil && err != unix.ESRCH {
		return nil, fmt.Errorf("watch process %d: %w", p.pid, err)
	}
	if err == nil {
		h.file = os.NewFile(uintptr(fd), "pidfd")
	}
	group := read(make([]byte, 4096), proc, strconv.Itoa(p.pid), "cgroup")
	if _, container := ownerOf(group); err != nil || container != p.container {
		_ = h.file.Close() // of nil: an error
		h.file, h.at = nil, time.Now()
		h.end()
	}
	return h, nil
}
