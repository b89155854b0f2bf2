package observe

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
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
		// Many pods start at once: the scans take a tenth of a core. On a node without a free core a scan takes long, and
		// pods that terminate soon after their start cannot wait.
		pause := min(max(scanPause, 10*time.Since(began)), maxScanPause)
		if missing {
			again.Reset(2 * pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
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
	if observe.AwaitExit(ctx, h.file) != nil {
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
	if isEnding {
		return
	}
	select { // the API server's news may be on its way
	case <-ctx.Done():
		return
	case <-time.After(newsPatience):
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
