package agent

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/pipe"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// The kubelet runs an app container's preStop hook in two cases: when the pod ends, and
// when that container alone is restarted (a failed liveness probe, a changed image). In the
// second the pod and its endpoint may stay ready, so no client must be refused.
//
// When the pod ends, the kubelet says so to all containers at once: a native sidecar's own
// hook is called, a classic one gets SIGTERM. An app's hook that stays alone is a restart.

// Sidecar is how the agent stands in its pod, and so how it learns that the pod ends.
type Sidecar string

const (
	// UnknownSidecar cannot tell a restart from the end of the pod: an app's hook begins a
	// drain that keeps the listeners open.
	UnknownSidecar Sidecar = ""

	// NativeSidecar is an init container with restartPolicy Always and a preStop hook of its own.
	NativeSidecar Sidecar = "native"

	// ClassicSidecar is a container without a preStop hook.
	ClassicSidecar Sidecar = "classic"
)

const (
	// restartKnown is how long an app's hook has to stay alone to be a restart. The kubelet
	// starts all hooks and signals of a pod's end at once; this is for a node that is busy.
	restartKnown = 750 * time.Millisecond

	// restartHook is how long an app's hook takes at most in a restart: what is in flight
	// then is left to the app and its SIGTERM.
	restartHook = time.Second

	// restartSettle is how long new connections are held back after the hook for the
	// container to be signalled and to close its listener. One that still listens then goes
	// on serving; where none does, connections wait by themselves.
	restartSettle = time.Second

	// restartLook is how often the app's listeners are looked at: the kernel reports no
	// new listener.
	restartLook = 20 * time.Millisecond

	// restartSlack is how long after the grace period and LASTCALL_RESTART_WAIT an app that
	// has not come back is given up, and its clients get their 503 at once.
	restartSlack = 30 * time.Second
)

// restartedContainer is an app container that is restarted. Its hook waits for answered.
type restartedContainer struct {
	ports    []uint16 // that it listens on; nil: every port of the app is its own
	began    time.Time
	answered chan struct{}
}

// awaitAppHook returns when an app container may get its SIGTERM.
func (a *agent) awaitAppHook(ctx context.Context, ports []uint16) error {
	began := time.Now()
	if a.Sidecar == UnknownSidecar {
		a.signal(ctx, drain.AppHook)
		return a.phases.drained(ctx)
	}
	if a.phases.begins(ctx, restartKnown) {
		return a.phases.drained(ctx)
	}
	c := restartedContainer{ports: ports, began: began, answered: make(chan struct{})}
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
	if a.phases.isEnding() { // the pod ends after all
		return a.phases.drained(ctx)
	}
	return nil
}

// attendRestarts follows each restart, until ctx ends.
func (a *agent) attendRestarts(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case c := <-a.restarts:
			all.Go(func() { a.followRestart(ctx, c) })
		case <-ctx.Done():
			return
		}
	}
}

// restart is what a data plane does during one; see pipe.Restart.
type restart interface {
	InFlight() int
	Release()
	End()
}

// planeRestart is that of a data plane that holds nothing back.
type planeRestart struct{ drain.DataPlane }

func (r planeRestart) InFlight() int {
	if now, err := r.Activity(context.Background()); err == nil && now.Known {
		return now.Busy
	}
	return 1 // what is unknown is busy
}
func (planeRestart) Release() {}
func (planeRestart) End()     {}

func (a *agent) beginRestart(ports []uint16) restart {
	if p, isPipe := a.plane.(*pipe.Pipe); isPipe {
		return p.BeginRestart(ports, a.Settings.RestartWait.Value)
	}
	return planeRestart{a.plane}
}

// followRestart lets the hook return, and then waits for the container to be back.
func (a *agent) followRestart(ctx context.Context, c restartedContainer) {
	a.status.metrics.restarts.Inc()
	a.log.Info("an app container is being restarted; the pod goes on, new connections wait for it", "wait", a.Settings.RestartWait.Value)
	look, closeLook := a.openListeners()
	defer closeLook()
	before := look(c.ports)
	r := a.beginRestart(c.ports)
	defer r.End()

	tick := time.NewTicker(restartLook)
	defer tick.Stop()
	for r.InFlight() > 0 && time.Since(c.began) < restartHook && !a.phases.isEnding() && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if n := r.InFlight(); n > 0 {
		a.log.Warn("requests are left to the container that is restarted", "requests", n)
	}
	close(c.answered)

	answered := time.Now()
	giveUp := answered.Add(a.Settings.GracePeriod.Value + a.Settings.RestartWait.Value + restartSlack)
	for released := false; time.Now().Before(giveUp); {
		gone, back := before.compare(look(c.ports))
		switch {
		case gone && back == backAll:
			a.log.Info("the app container is back", "after", time.Since(c.began).Round(time.Millisecond))
			return
		case !released && (back == backSome || time.Since(answered) >= restartSettle):
			released = true
			r.Release()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	a.log.Warn("the app container has not come back", "after", time.Since(c.began).Round(time.Millisecond))
}

// listeners are the listening sockets of a pod's apps, by port.
type listeners map[uint16][]uint32

// returned says how much of what was gone is there again.
type returned int

const (
	backNone returned = iota
	backSome
	backAll
)

// compare says whether a port has lost all of its listeners since before, and how many of
// such ports have new ones.
func (before listeners) compare(now listeners) (gone bool, back returned) {
	lost, found := 0, 0
	for port, old := range before {
		if slices.ContainsFunc(now[port], func(inode uint32) bool { return slices.Contains(old, inode) }) {
			continue
		}
		lost++
		if len(now[port]) > 0 {
			found++
		}
	}
	switch {
	case found == 0:
	case found == lost:
		back = backAll
	default:
		back = backSome
	}
	return lost > 0, back
}

// openListeners opens the kernel's table. Where it cannot be read, no port has a listener:
// connections try the app by themselves.
func (a *agent) openListeners() (look func(ports []uint16) listeners, done func()) {
	table, err := sockdiag.OpenTable()
	if err != nil {
		a.log.Warn("the app's listeners cannot be watched", "error", err)
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

// hookPorts are the ports of the container whose hook a request is: ?ports=8080,9090.
// Without them every port is its own; with an empty list none is known to be.
func hookPorts(r *http.Request) []uint16 {
	query := r.URL.Query()
	if !query.Has("ports") {
		return nil
	}
	out := []uint16{}
	for text := range strings.SplitSeq(query.Get("ports"), ",") {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil {
			out = append(out, uint16(port))
		}
	}
	return out
}
