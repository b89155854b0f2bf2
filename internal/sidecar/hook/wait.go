// Package hook runs a preStop hook: it drains a data plane, and returns when the app may receive its SIGTERM.
package hook

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Wait returns when the app may receive its SIGTERM: no request is in flight and no new connections arrive, or the
// deadline of c (Until, Within) has come. It logs its progress, and ends the watch of the data plane. app is for a
// container that may only restart, and else nil: Wait returns at once when it fails its probe.
func Wait(ctx context.Context, plane drain.DataPlane, c drain.Config, app *App, log *slog.Logger) (drain.Report, error) {
	limit, _ := c.Limit()
	log.Info("draining", "minimum_drain", c.MinimumDrain.Round(time.Millisecond),
		"deadline_in", limit.Round(time.Millisecond))
	n := narrator{log: log}
	signals := make(chan drain.Signal, 1)
	asks, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		var err error
		if app != nil {
			err = app.awaitFailure(asks, n.isAlone)
		}
		if err != nil {
			log.Warn("the app fails its probe: its container restarts; leaving open connections to it", "error", err)
			signals <- drain.QuitNow
		}
		failed <- err
	}()
	// drain's own lines are Istio's, about a proxy.
	r, err := drain.Termination{
		Plane:   plane,
		Config:  c,
		Trigger: drain.Hook,
		Signals: signals,
		Log:     slog.New(slog.DiscardHandler),
		Watch:   drain.Watcher{Phase: n.enter, Activity: n.see},
	}.Run(ctx)
	stop()
	why := <-failed
	plane.Kill()
	if r.Finish != nil {
		log.Info("leaving open connections to the app, which finishes its requests", "open", r.Finish.Opaque)
	}
	if why != nil && r.Verdict == drain.Quit {
		r.Verdict = drain.Restarted
		r.Faults = append(r.Faults, fmt.Sprintf("the app failed its probe: %v", why))
	}
	if a, ok := plane.(drain.Assumer); ok && err == nil {
		r.Assumed, r.Faults = append(r.Assumed, a.Assumed()...), append(r.Faults, a.Warnings()...)
		if r.Verdict == drain.Clean && len(r.Assumed) > 0 {
			r.Verdict = drain.Assumed
		}
	}
	return r, err
}

// narrator logs the progress, no more than once a second.
type narrator struct {
	log      *slog.Logger
	phase    drain.Phase
	loggedAt time.Time
	busy     int
	alone    atomic.Bool // the latest activity has no connection
}

func (n *narrator) isAlone() bool { return n.alone.Load() }

func (n *narrator) enter(p drain.Phase) {
	n.phase = p
	switch p {
	case drain.Waiting:
		n.log.Info("minimum drain complete; waiting for requests in flight")
	case drain.LastCall:
		n.log.Warn("deadline reached; leaving open connections to the app", "busy", n.busy)
	}
}

func (n *narrator) see(a drain.Activity) {
	changed := a.Busy != n.busy
	n.busy = a.Busy
	n.alone.Store(a.Known && a.Connections == 0)
	if now := time.Now(); changed && n.phase == drain.Waiting && now.Sub(n.loggedAt) >= time.Second {
		n.loggedAt = now
		n.log.Info("in flight", "busy", a.Busy, "open", a.Connections)
	}
}

// DefaultLeave is the part of the grace period that is left to the app after its SIGTERM: of 30 s, 25 s for its clients
// and 5 s for itself, as in Istio's ambient mode. At most a quarter of the grace period is taken.
const DefaultLeave = 5 * time.Second

// EnvoyEnd is how long Envoy may take to exit at the end of a sidecar's hook. The hook leaves it of the grace period.
const EnvoyEnd = time.Second

// Until sets the deadline of a configuration: leave before the end of the grace period.
func Until(c drain.Config, leave time.Duration) drain.Config {
	c.Mode, c.HookOnly = drain.ExitOnZero, true
	c.Deadline = drain.Config{GracePeriod: c.GracePeriod, Margin: leave}.LastCallAfter()
	return c
}

// Within sets the deadline of a configuration to timeout after the start; timeout must be positive. SIGKILL is unknown.
func Within(c drain.Config, timeout time.Duration) drain.Config {
	c.Mode, c.HookOnly, c.Deadline, c.GracePeriod = drain.ExitOnZero, true, timeout, timeout+DefaultLeave
	return c
}
