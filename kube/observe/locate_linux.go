package observe

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"time"
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
		missing := o.match(ctx, indexOf(processes))
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
func (o *Observer) match(ctx context.Context, processes index) (missing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.tracked {
		if t.isDone || t.pod.HostNetwork || !t.pod.hasStarted() {
			continue
		}
		if all := processes.of(&t.pod); len(all) > 0 {
			t.mains = all
			if t.traffic == nil {
				o.enter(ctx, t)
				o.announceLocked(ctx, t)
			}
			o.watchMains(ctx, t)
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
		return c.IsRunning && !slices.ContainsFunc(t.mains, func(p process) bool { return p.container == c.ID })
	})
}

// enter opens the network namespace of a pod. o.mu is locked: the kernel answers at once.
func (o *Observer) enter(ctx context.Context, t *tracked) {
	for _, p := range t.mains {
		h, err := p.open(o.Proc)
		if err != nil || h == nil {
			continue
		}
		traffic, err := o.Open(filepath.Join(o.Proc, strconv.Itoa(p.pid), "ns", "net"), t.pod.Known)
		if o.Entered != nil {
			o.Entered(err)
		}
		if err != nil {
			h.close()
			o.Log.Warn("cannot enter the network namespace of a pod", "namespace", t.pod.Namespace, "pod", t.pod.Name, "error", err)
			t.retries = scanRetries
			return
		}
		t.traffic, t.sandbox = traffic, h
		// The namespace must not outlive its pod by long.
		ctx, cancel := context.WithCancel(ctx)
		t.stop = cancel
		o.work.Go(func() {
			defer h.close()
			if h.wait(ctx) == nil {
				o.exited(ctx, t)
			}
		})
		return
	}
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
			notify(o.dirty)
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
