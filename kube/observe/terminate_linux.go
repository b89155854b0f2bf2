package observe

import (
	"context"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// terminate observes a termination from now on until the end of the pod.
func (o *Observer) terminate(ctx context.Context, t *tracked, began time.Time) Termination {
	r := o.begin(ctx, t, began)
	began = r.Began
	exits := o.exits(ctx, t, began)
	o.mu.Lock()
	traffic := t.traffic
	t.traffic = nil // this function closes it
	ended, hasPorts := t.pod.appEnd(exits), t.pod.HasPorts
	o.mu.Unlock()
	if traffic != nil {
		r.Traffic = traffic.End(began.Add(ended), observe.Exit{})
		if r.Traffic.Overruns > 0 || r.Traffic.Unseen > 0 {
			r.Doubt(UnknownOverrun)
		}
		if len(r.Traffic.Ports) == 0 && hasPorts { // without its listeners, no connection is a client's
			r.Doubt(UnknownListener)
		}
		_ = traffic.Close()
	}
	if ctx.Err() != nil || len(exits) == 0 { // it is stuck, or its processes were not found
		r.Doubt(UnknownEnd)
	}
	p, isGone := o.lastState(ctx, t)
	if deadline := p.deadline(began); !deadline.IsZero() {
		r.Deadline = deadline
	}
	r.isGone = isGone
	o.mu.Lock()
	if d := t.accepted; !d.At.IsZero() {
		r.Deadline, r.DeadlineFrom = d.At, d.From
	}
	o.mu.Unlock()
	r.conclude(&p, exits)
	return r
}

// begin lets the kernel report destroyed sockets.
func (o *Observer) begin(ctx context.Context, t *tracked, began time.Time) Termination {
	o.mu.Lock()
	r := t.report(o.Node, began)
	traffic, found := t.traffic, t.found
	isLate := traffic == nil
	if isLate { // it has just started, or the observer has
		t.retries = 0
		sockdiag.Notify(o.dirty)
	}
	if !t.pod.isTerminating() && !t.isGone {
		r.Doubt(UnknownDeadline)
	}
	if at := t.pod.Deleted; !at.IsZero() && began.Sub(at) > lateAfter || t.isMissed {
		r.Doubt(UnknownLate)
	}
	p := t.pod
	since := p.earliest(began)
	if at := t.ended.Add(-time.Second); !t.ended.IsZero() && at.Before(since) { // its losses are in this report
		since = at
	}
	o.mu.Unlock()
	if isLate {
		select {
		case <-found:
		case <-ctx.Done():
		case <-time.After(statusPatience):
		}
		o.mu.Lock()
		traffic = t.traffic
		o.mu.Unlock()
	}
	if traffic == nil {
		r.Doubt(UnknownNamespace)
		return r
	}
	if isLate { // connections may have ended meanwhile
		r.Doubt(UnknownLate)
	}
	if at := traffic.Reacted(since); !at.IsZero() && at.Before(began) { // the news came after the signal
		r.Began, r.Deadline = at, p.deadline(at)
	}
	if err := traffic.Begin(r.Began, "termination"); err != nil {
		o.Log.Warn("cannot watch the sockets of a pod that terminates", "namespace", r.Namespace, "pod", r.Pod, "error", err)
		r.Doubt(UnknownNamespace)
	}
	return r
}

// observing is logged when everything of a termination is watched.
const observing = "observing a termination"

// exits waits for the end of the pod's processes and returns when they exited, by container: after the beginning. One
// that had exited already counts from now.
func (o *Observer) exits(ctx context.Context, t *tracked, began time.Time) map[string]time.Duration {
	o.mu.Lock()
	mains := slices.Clone(t.mains)
	limit := t.pod.limit(began)
	o.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	o.Log.Debug(observing, "processes", len(mains))
	now, out := time.Now(), map[string]time.Duration{}
	for _, h := range mains {
		select {
		case <-h.exited.Done():
		case <-ctx.Done():
		}
		if h.exited.Err() != nil {
			out[h.container] = max(out[h.container], h.at.Sub(began), now.Sub(began))
		}
	}
	return out
}

// lastState is the pod with its exit codes, which the API server has a moment after the exits.
func (o *Observer) lastState(ctx context.Context, t *tracked) (p Pod, isGone bool) {
	o.mu.Lock()
	atMost := statusPatience
	if pod.HasLastcall(t.pod.Proxy) {
		atMost = reportPatience
	}
	o.mu.Unlock()
	patience := time.NewTimer(atMost)
	defer patience.Stop()
	for {
		o.mu.Lock()
		p, isGone = t.pod, t.isGone
		o.mu.Unlock()
		if isGone || p.hasEnded() {
			return p, isGone
		}
		select {
		case <-t.changed:
		case <-patience.C:
			return p, isGone
		case <-ctx.Done():
			return p, isGone
		}
	}
}

// report is a termination that has just begun. The observer's lock is held.
func (t *tracked) report(node string, began time.Time) Termination {
	p := &t.pod
	return Termination{
		Termination: advice.Termination{
			Namespace: p.Namespace, Pod: p.Name, Workload: p.Workload, Proxy: p.Proxy,
			Began: began, Deadline: p.deadline(began),
		},
		UID: p.UID, Node: node, owner: p.Owner,
	}
}

// Limits of the observation of a container that ends without its pod.
const (
	restartNews = time.Second      // for the API server's news that the pod ends
	maxRestart  = 10 * time.Second // until the next container listens; clients are refused meanwhile
	restartPoll = 100 * time.Millisecond
)

// watchContainers notes the first process of each container: its exit is the container's end. o.mu is locked.
func (t *tracked) watchContainers() {
	for _, c := range t.pod.Containers {
		i := slices.IndexFunc(t.mains, func(h *handle) bool { return h.container == c.ID && h.exited.Err() == nil })
		if i >= 0 && t.traffic != nil && !t.watched[c.ID] {
			t.mains[i].name, t.watched[c.ID] = c.Name, true
		}
	}
}

// restarted reports the losses of a container that ended at a moment, unless its pod ends. A second watch of the
// namespace stays for the pod's own end.
func (o *Observer) restarted(ctx context.Context, t *tracked, name string, at time.Time) {
	o.mu.Lock()
	t.ended = at
	o.mu.Unlock()
	if poll.Pause(ctx, restartNews) != nil {
		return
	}
	o.mu.Lock()
	isBusy := o.ending >= maxTerminations
	if t.isEnding || t.isDone || t.isGone || o.broken || isBusy || t.traffic == nil {
		o.mu.Unlock()
		return
	}
	traffic := t.traffic
	next, err := o.open(t, t.sandbox)
	if err != nil { // the sandbox has ended, too
		next = nil
	}
	t.traffic, t.ended = next, time.Time{}
	r, grace := t.report(o.Node, at), t.pod.Grace
	o.ending++
	o.mu.Unlock()
	defer func() {
		_ = traffic.Close()
		o.mu.Lock()
		o.ending--
		o.mu.Unlock()
	}()
	if first := traffic.Reacted(at.Add(-grace)); !first.IsZero() && first.Before(at) {
		r.Began = first
	}
	listening := traffic.Listening()
	if traffic.Begin(r.Began, "the end of a container") != nil {
		return
	}
	limited, stop := context.WithTimeout(ctx, maxRestart)
	defer stop()
	_ = poll.Until(limited, restartPoll, func() bool {
		o.mu.Lock()
		isOver := t.isEnding || t.isDone
		o.mu.Unlock()
		now := traffic.Listening()
		return isOver || len(now) > 0 && len(now) >= len(listening)
	})
	r.Traffic = traffic.End(at, observe.Exit{})
	if len(r.Traffic.Ports) == 0 { // it was no server
		return
	}
	r.Restart, r.Container, r.Deadline, r.Seconds = true, name, time.Time{}, at.Sub(r.Began).Seconds()
	r.Judge()
	o.finish(r)
}
