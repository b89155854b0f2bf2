package observe

import (
	"context"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

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
	select {
	case <-ctx.Done():
		return
	case <-time.After(restartNews):
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
	for limit := time.Now().Add(maxRestart); ; {
		o.mu.Lock()
		isOver := t.isEnding || t.isDone
		o.mu.Unlock()
		now := traffic.Listening()
		if isOver || ctx.Err() != nil || time.Now().After(limit) || len(now) > 0 && len(now) >= len(listening) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(restartPoll):
		}
	}
	r.Traffic = traffic.End(at, observe.Exit{})
	if len(r.Traffic.Ports) == 0 { // it was no server
		return
	}
	r.Restart, r.Container, r.Deadline, r.Seconds = true, name, time.Time{}, at.Sub(r.Began).Seconds()
	r.Judge()
	o.finish(r)
}
