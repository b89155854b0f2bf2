// Package hook runs a preStop hook: it drains a data plane, and returns when the app may receive its SIGTERM.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// Wait returns when the app may receive its SIGTERM: no request is in flight and no new connections arrive, or the
// deadline of c (Until, Within) has come. It logs its progress, and ends the watch of the data plane p. app is for a
// container that may only restart, and else nil: Wait returns at once when it fails its probe.
func Wait(ctx context.Context, p drain.DataPlane, c drain.Config, app *App, log *slog.Logger) (drain.Report, error) {
	limit, _ := c.Limit()
	log.Info("draining", "minimum_drain", c.MinimumDrain.Round(time.Millisecond),
		"deadline_in", limit.Round(time.Millisecond))
	n := narrator{log: log}
	requests := new(drain.Requests)
	asks, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		var err error
		if app != nil {
			err = app.awaitFailure(asks, n.alone.Load)
		}
		if err != nil {
			log.Warn("the app fails its probe: its container restarts; leaving open connections to it", "error", err)
			requests.Send(drain.QuitNow)
		}
		failed <- err
	}()
	// drain's own lines are Istio's, about a proxy.
	r, err := drain.Termination{
		Plane:    p,
		Config:   c,
		Trigger:  drain.HookAlone,
		Requests: requests,
		Log:      slog.New(slog.DiscardHandler),
		Watch:    drain.Watcher{Phase: n.enter, Activity: n.see},
	}.Run(ctx)
	stop()
	why := <-failed
	p.Kill()
	if r.Finish != nil {
		log.Info("leaving open connections to the app, which finishes its requests", "open", r.Finish.Opaque)
	}
	if why != nil && r.Verdict == drain.Quit {
		r.Verdict = drain.Restarted
		r.Faults = append(r.Faults, fmt.Sprintf("the app failed its probe: %v", why))
	}
	if a, ok := p.(drain.Assumer); ok && err == nil {
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

// Config is the configuration of a hook without an agent. It leaves LASTCALL_LAST_CALL_MARGIN, or --last-call-margin,
// of the grace period. A worker has no clients that have to notice its end. timeout is --timeout; 0: none.
func Config(s *meshconfig.Settings, isWorker bool, timeout time.Duration) drain.Config {
	c, leave := s.Drain(), timers.DefaultLeave
	if isWorker && !s.MinimumDrain.IsSet() {
		c.MinimumDrain = 0
	}
	if isWorker && !s.QuietTime.IsSet() {
		c.QuietTime = 0
	}
	if s.Margin.IsSet() {
		leave = s.Margin.Value
	}
	c = Until(c, leave)
	// By hand or under systemd the only grace period is one that is set.
	if timeout > 0 && (!s.GracePeriod.IsSet() || timeout < c.LastCallAfter()) {
		c = Within(c, timeout)
	}
	return c
}

// Until sets the deadline of a configuration: leave before the end of the grace period.
func Until(c drain.Config, leave time.Duration) drain.Config {
	c.Mode = drain.ExitOnZero
	c.Deadline = drain.Config{GracePeriod: c.GracePeriod, Margin: leave}.LastCallAfter()
	return c
}

// Within sets the deadline of a configuration to timeout after the start; timeout must be positive. SIGKILL is unknown.
func Within(c drain.Config, timeout time.Duration) drain.Config {
	c.Mode, c.Deadline, c.GracePeriod = drain.ExitOnZero, timeout, timeout+timers.DefaultLeave
	return c
}

// Rest is the part of a drain that remains when the time passed has been spent otherwise: the same deadline, and the
// rest of the minimum drain, but at least the quiet time, because connections that arrived in between were not seen.
func Rest(c drain.Config, passed time.Duration) drain.Config {
	deadline := max(c.LastCallAfter()-passed, time.Millisecond)
	c.MinimumDrain = max(c.MinimumDrain-passed, min(c.QuietTime, c.MinimumDrain))
	c.GracePeriod, c.Deadline = max(c.GracePeriod-passed, deadline), deadline
	return c
}

// The kubelet runs a preStop hook when the pod ends, and also when it restarts the container because the app has failed
// its liveness or startup probe. In the second case there is nothing to wait for. The hook distinguishes the two by the
// probe itself: the kubelet no longer runs it in a pod that ends, so there the app was healthy when the hook began.

// App has the probes for which the kubelet restarts the app's container; nil: none.
type App struct {
	Liveness *probe.Probe `json:"liveness,omitempty"`
	Startup  *probe.Probe `json:"startup,omitempty"`
}

// ParseApp reads an App as JSON. An empty text has no probes.
func ParseApp(text string) (*App, error) {
	if text == "" {
		return nil, nil
	}
	var a App
	err := json.Unmarshal([]byte(text), &a)
	for _, p := range []*probe.Probe{a.Liveness, a.Startup} {
		if p != nil && err == nil {
			err = p.Validate()
		}
	}
	if err == nil && a.Liveness == nil && a.Startup == nil {
		err = errors.New("there is neither liveness nor startup")
	}
	if err != nil {
		return nil, fmt.Errorf(`%w; must be {"liveness": {"httpGet": {"path": "/", "port": 8080}}, "startup": …}`, err)
	}
	return &a, nil
}

const (
	// firstChecks is the time in which the hook begins as many checks as the threshold has, when it begins. The kubelet
	// has made its own before, with the whole period between them.
	firstChecks = 300 * time.Millisecond

	defaultPeriod    = 10 * time.Second // Kubernetes' periodSeconds
	defaultThreshold = 3                // Kubernetes' failureThreshold
	maxFirstChecks   = 10
)

// awaitFailure returns the error of a probe that has failed as often as its threshold; nil if ctx ends before.
//
// A refused connection is not enough: an app may close its listener when it notices the end of the pod, and still
// answer on open connections. Nor is the startup probe, which may fail once the app has started. Both count only while
// the app has no connection, so that an early end loses nothing.
func (a *App) awaitFailure(ctx context.Context, isAlone func() bool) error {
	p, isCertain := a.Liveness, true
	if p == nil {
		p, isCertain = a.Startup, false
	}
	threshold, period := p.FailureThreshold, time.Duration(p.PeriodSeconds)*time.Second
	if threshold <= 0 {
		threshold = defaultThreshold
	}
	if period <= 0 {
		period = defaultPeriod
	}
	counts := func(err error) bool {
		return err != nil && ctx.Err() == nil && (isCertain && !errors.Is(err, syscall.ECONNREFUSED) || isAlone())
	}
	if err := checkOften(ctx, p, min(threshold, maxFirstChecks)); counts(err) {
		return err
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for failed := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		err := p.Check(ctx)
		if failed++; err == nil {
			failed = 0
		}
		if failed >= threshold && counts(err) {
			return err
		}
	}
}

// checkOften runs a probe n times, one a little after the other, and returns nil as soon as one succeeds.
func checkOften(ctx context.Context, p *probe.Probe, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, n)
	for i := range n {
		go func() {
			timer := time.NewTimer(firstChecks / time.Duration(n) * time.Duration(i))
			defer timer.Stop()
			select {
			case <-timer.C:
				results <- p.Check(ctx)
			case <-ctx.Done():
				results <- ctx.Err()
			}
		}()
	}
	var last error
	isHealthy := false
	for range n { // each, so that none outlives this
		if err := <-results; err == nil {
			isHealthy = true
			cancel()
		} else if !isHealthy {
			last = err
		}
	}
	if isHealthy {
		return nil
	}
	return last
}
