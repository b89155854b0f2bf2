package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// The kubelet runs an app container's preStop hook in two cases: when the pod ends, and when that container alone is
// restarted (a failed liveness probe, a changed image). In the second case the pod and its endpoint may stay ready, so
// no client must be refused.
//
// When the pod ends, the kubelet stops all containers at the same time: it calls a native sidecar's own hook, and sends
// a classic one SIGTERM. An app's hook without either is a restart.

// Sidecar is the kind of container in which the agent runs, which decides how it detects the end of the pod.
type Sidecar string

const (
	// UnknownSidecar cannot distinguish a restart from the end of the pod: an app's hook begins a drain that keeps the
	// listeners open.
	UnknownSidecar Sidecar = ""

	// NativeSidecar is an init container with restartPolicy Always and a preStop hook of its own.
	NativeSidecar Sidecar = "native"

	// ClassicSidecar is a container without a preStop hook.
	ClassicSidecar Sidecar = "classic"
)

const (
	// restartKnown is how long an app's hook has to stay alone to count as a restart. The kubelet starts all hooks and
	// signals of a pod's end at once; the rest is for a busy node.
	restartKnown = 750 * time.Millisecond

	// restartHook limits an app's hook in a restart: requests still in flight are left to the app and its SIGTERM.
	restartHook = time.Second

	// restartSettle is how long new connections are held after the hook, until the container has received its signal and
	// closed its listener. A container that still listens then keeps serving; where none listens, connections wait anyway.
	restartSettle = time.Second

	// restartPoll is how often the app's listeners are checked while new connections are held: the kernel does not report
	// new listeners. slowPoll is how often when the connections try the app themselves.
	restartPoll = 20 * time.Millisecond
	slowPoll    = 250 * time.Millisecond

	// restartSlack is how long after the grace period and LASTCALL_RESTART_WAIT the agent gives up an app that has not
	// come back; its clients get a 503 at once from then on.
	restartSlack = 30 * time.Second
)

// restartedContainer is an app container that is being restarted.
type restartedContainer struct {
	ports    []uint16 // its listeners; nil: all ports of the app
	began    time.Time
	answered chan struct{} // closed when its hook may return
	at       time.Time     // of that
	unfollow context.CancelFunc
}

// includes reports whether a hook of the same container belongs to this restart: it has begun before the first one
// returned. The kubelet runs one hook, but a peer with the pod's token can send any number.
func (c *restartedContainer) includes(hook *restartedContainer) bool {
	select {
	case <-c.answered:
		return hook.began.Before(c.at)
	default:
		return true
	}
}

// maxContainers is how many containers of a pod the ports of their hooks distinguish. A peer chooses the ports.
const maxContainers = 16

// containerKey is the key of a container with these ports; nil for all ports.
func containerKey(ports []uint16) string {
	if ports == nil {
		return "all"
	}
	return fmt.Sprint(ports)
}

// awaitAppHook returns when the app container with these ports may receive its SIGTERM.
func (a *agent) awaitAppHook(ctx context.Context, ports []uint16) error {
	began := time.Now()
	if a.Pod.Sidecar == UnknownSidecar {
		a.requests.Send(drain.AppHook)
		return a.phases.leftToApp(ctx)
	}
	known, cancel := context.WithTimeout(ctx, restartKnown)
	defer cancel()
	if a.phases.Await(known, func() bool { return a.phases.phase != drain.Serving }) == nil {
		return a.phases.leftToApp(ctx)
	}
	c := &restartedContainer{ports: ports, began: began, answered: make(chan struct{})}
	select {
	case a.restarts <- c:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-c.answered:
	case <-ctx.Done():
		return ctx.Err()
	}
	if a.phases.isEnding() { // the pod ends nevertheless
		return a.phases.leftToApp(ctx)
	}
	return nil
}

// handleRestarts handles each restart, until ctx ends. A container that restarts again is followed once, from its
// latest hook.
func (a *agent) handleRestarts(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	latest := make(map[string]*restartedContainer)
	for {
		select {
		case c := <-a.restarts:
			if latest[containerKey(c.ports)] == nil && len(latest) >= maxContainers {
				c.ports = nil
			}
			previous := latest[containerKey(c.ports)]
			if previous != nil && previous.includes(c) {
				all.Go(func() { <-previous.answered; close(c.answered) })
				continue
			}
			follows, cancel := context.WithCancel(ctx)
			c.unfollow = cancel
			latest[containerKey(c.ports)] = c
			all.Go(func() {
				defer cancel()
				a.followRestart(follows, c, previous)
			})
		case <-ctx.Done():
			return
		}
	}
}

// inFlight counts the requests of a data plane that cannot hold connections back.
func (a *agent) inFlight() int {
	if now, err := a.plane.Activity(context.Background()); err == nil && now.Known {
		return now.Busy
	}
	return 1 // unknown counts as busy
}

// followRestart lets the hook return, and then waits until the container is back. previous, which may be nil, is no
// longer followed when new connections wait for this restart.
func (a *agent) followRestart(ctx context.Context, c, previous *restartedContainer) {
	a.status.metrics.restarts.Inc()
	a.log.Info("app container restart detected; new connections wait for it", "wait", a.Settings.RestartWait.Value)
	look, closeLook := a.openListeners()
	defer closeLook()
	before := look(c.ports)
	inFlight, release := a.inFlight, func() {}
	if p, isPipe := a.plane.(*pipe.Pipe); isPipe {
		r := p.BeginRestart(c.ports, a.Settings.RestartWait.Value)
		defer r.End()
		inFlight, release = r.InFlight, r.Release
	}
	if previous != nil {
		previous.unfollow()
	}

	_ = poll.Until(ctx, restartPoll, func() bool {
		return inFlight() == 0 || time.Since(c.began) >= restartHook || a.phases.isEnding()
	})
	if n := inFlight(); n > 0 {
		a.log.Warn("requests still in flight; leaving them to the app container that is being restarted", "requests", n)
	}
	c.at = time.Now()
	close(c.answered)

	giveUp := c.at.Add(a.Settings.GracePeriod.Value + a.Settings.RestartWait.Value + restartSlack)
	isBack, released := false, false
	check := func() bool {
		lost, found := before.compare(look(c.ports))
		isBack = lost > 0 && found == lost
		if !isBack && !released && (found > 0 || time.Since(c.at) >= restartSettle) {
			released = true
			release()
		}
		return isBack
	}
	err := poll.Until(ctx, restartPoll, func() bool { return check() || released })
	if err == nil && !isBack {
		err = poll.Until(ctx, slowPoll, func() bool { return check() || time.Now().After(giveUp) })
	}
	switch after := time.Since(c.began).Round(time.Millisecond); {
	case isBack:
		a.log.Info("app container is back", "after", after)
	case err == nil:
		a.log.Warn("app container has not come back", "after", after)
	}
}

// listeners are the listening sockets of a pod's apps, by port.
type listeners map[uint16][]uint32

// compare counts the ports that have lost all of their listeners since before, and those of them with new ones.
func (before listeners) compare(now listeners) (lost, found int) {
	for port, old := range before {
		if slices.ContainsFunc(now[port], func(inode uint32) bool { return slices.Contains(old, inode) }) {
			continue
		}
		lost++
		if len(now[port]) > 0 {
			found++
		}
	}
	return lost, found
}

// openListeners opens the kernel's table. If that fails, no port has a listener: connections to the app are tried
// without this knowledge.
func (a *agent) openListeners() (look func(ports []uint16) listeners, done func()) {
	table, err := sockdiag.OpenTable()
	if err != nil {
		a.log.Warn("cannot watch the app's listeners", "error", err)
		return func([]uint16) listeners { return nil }, func() {}
	}
	return func(ports []uint16) listeners {
		all, err := table.Listeners()
		if err != nil {
			return nil
		}
		out := make(listeners)
		for _, s := range all {
			if port := s.Local.Port(); ports == nil || slices.Contains(ports, port) {
				out[port] = append(out[port], s.Inode)
			}
		}
		return out
	}, func() { _ = table.Close() }
}
