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

	"github.com/lastcall-dev/lastcall/internal/poll"
	osprocess "github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// locate finds the processes of pods and opens their network namespaces, until ctx ends.
func (o *Observer) locate(ctx context.Context) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-o.dirty:
		}
		began := time.Now()
		processes, err := scan(o.Proc)
		if err != nil {
			o.Log.Warn("cannot list the processes of the node", "error", err)
		}
		missing := o.match(ctx, processes)
		// Many pods start at once: the scans take a tenth of a core. On a node without a free core a scan takes long,
		// and pods that terminate soon after their start cannot wait.
		pause := min(max(scanPause, 10*time.Since(began)), maxScanPause)
		if missing {
			again.Reset(2 * pause)
		}
		if poll.Pause(ctx, pause) != nil {
			return
		}
	}
}

// match gives pods their processes. It reports whether some are missing that may be found later.
func (o *Observer) match(ctx context.Context, processes []process) (missing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.tracked {
		if t.isDone || t.pod.HostNetwork || !t.pod.hasStarted() {
			continue
		}
		if t.traffic == nil || !t.hasAllLocked() { // the others have all that they need
			if all := processesOf(&t.pod, processes); len(all) > 0 {
				o.watch(ctx, t, all)
				if t.traffic == nil {
					o.enter(t)
					o.announceLocked(ctx, t)
				}
				t.watchContainers()
			}
		}
		if t.traffic != nil && t.hasAllLocked() || t.retries >= scanRetries || t.pod.hasEnded() {
			select {
			case <-t.found:
			default:
				close(t.found)
			}
			continue
		}
		t.retries++
		missing = true
	}
	o.countPods()
	return missing
}

// hasAllLocked reports whether each running container has a process.
func (t *tracked) hasAllLocked() bool {
	return !slices.ContainsFunc(t.pod.Containers, func(c Container) bool {
		return c.IsRunning && !slices.ContainsFunc(t.mains, func(h *handle) bool { return h.container == c.ID })
	})
}

// watch follows the main processes of a pod until they exit. o.mu is locked.
func (o *Observer) watch(ctx context.Context, t *tracked, all []process) {
	if t.life == nil || t.life.Err() != nil {
		t.life, t.stop = context.WithCancel(ctx)
	}
	was, life := t.mains, t.life
	t.mains = nil
	for _, p := range all {
		i := slices.IndexFunc(was, func(h *handle) bool { return h.process == p })
		if i >= 0 {
			t.mains = append(t.mains, was[i])
			continue
		}
		h, err := p.open(o.Proc)
		if err != nil {
			o.Log.Warn("cannot watch a process of a pod", "namespace", t.pod.Namespace, "pod", t.pod.Name, "error", err)
			continue
		}
		if t.mains = append(t.mains, h); h.file != nil {
			o.work.Go(func() { o.await(life, t, h) })
		}
	}
}

// await handles the exit of a main process.
func (o *Observer) await(ctx context.Context, t *tracked, h *handle) {
	defer func() { _ = h.file.Close() }()
	if osprocess.AwaitExit(ctx, h.file) != nil {
		return
	}
	h.at = time.Now()
	h.end()
	o.mu.Lock()
	isSandbox, container := t.sandbox == h, h.name
	o.mu.Unlock()
	if isSandbox { // the namespace must not outlive its pod by long
		o.work.Go(func() { o.exited(ctx, t) })
	}
	if container != "" {
		o.restarted(ctx, t, container, h.at)
	}
}

// enter opens the network namespace of a pod. o.mu is locked: the kernel answers at once.
func (o *Observer) enter(t *tracked) {
	i := slices.IndexFunc(t.mains, func(h *handle) bool { return h.exited.Err() == nil })
	if i < 0 {
		return
	}
	traffic, err := o.open(t, t.mains[i])
	if o.Entered != nil {
		o.Entered(err)
	}
	if err != nil {
		o.Log.Warn("cannot enter the network namespace of a pod",
			"namespace", t.pod.Namespace, "pod", t.pod.Name, "error", err)
		t.retries = scanRetries
		return
	}
	t.traffic, t.sandbox = traffic, t.mains[i]
}

// open opens the network namespace of one of a pod's processes.
func (o *Observer) open(t *tracked, h *handle) (Watch, error) {
	return o.Open(filepath.Join(o.Proc, strconv.Itoa(h.pid), "ns", "net"), t.pod.Known)
}

// exited handles the exit of the first process of a pod, the sandbox, which the kubelet ends after all containers.
func (o *Observer) exited(ctx context.Context, t *tracked) {
	o.mu.Lock()
	isEnding := t.isEnding
	o.mu.Unlock()
	if isEnding || poll.Pause(ctx, newsPatience) != nil { // the API server's news may be on its way
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case t.isEnding || t.isDone:
	case o.broken: // the kubelet ends pods by itself, too
		o.end(ctx, t, time.Now())
	default: // a Job's pod has completed, or the kubelet makes a new sandbox
		t.close()
		t.mains, t.retries, t.found = nil, 0, make(chan struct{})
		if !t.pod.hasEnded() {
			sockdiag.Notify(o.dirty)
		}
	}
}

// countPods sets the gauge. o.mu is locked.
func (o *Observer) countPods() {
	n := map[string]int{}
	for _, t := range o.tracked {
		switch {
		case t.pod.HostNetwork:
			n["host-network"]++
		case t.traffic != nil:
			n["watched"]++
		default:
			n["waiting"]++
		}
	}
	for _, state := range []string{"watched", "host-network", "waiting"} {
		o.Count.pods.WithLabelValues(state).Set(float64(n[state]))
	}
}

// process is the main process of a container, or the sandbox of a pod: its parent is outside of the container.
type process struct {
	pid       int
	container string    // the container's ID
	uid       types.UID // the pod's; empty if its cgroup does not name it
	network   string    // names its network namespace; empty if it cannot be read
}

// The names of containers and pods in a line of /proc/PID/cgroup:
// kubepods-burstable-pod1234_….slice/cri-containerd-ID.scope with the kubelet's systemd driver,
// kubepods/burstable/pod1234-…/ID with its cgroupfs driver, and k8s.io/ID with a kubelet that sets no cgroup for
// pods. The UID of a static pod has no dashes.
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
		parent := found[parentOf(read(b, proc, strconv.Itoa(pid), "stat"))]
		if parent.container == p.container {
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
		isIts := func(c Container) bool { return c.ID == p.container }
		return p.uid == pod.UID || slices.ContainsFunc(pod.Containers, isIts)
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
