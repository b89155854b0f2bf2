package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/admin"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

// Exit codes.
const (
	CodeIntended = 0 // an intended exit
	CodeCrashed  = 1 // an unexpected exit
	CodeCut      = 3 // requests or connections were cut, with FailOnCut
)

// agent is one run.
type agent struct {
	Options
	log      *slog.Logger
	plane    drain.DataPlane
	app      *process.Child // nil without an app
	status   *status
	outbound *outboundProxy // nil without one
	admin    *admin.Server  // nil when it is not answered
	phases   *phases

	requests *drain.Requests // everything that begins or ends a drain

	restarts chan *restartedContainer
	throttle logs.Throttle // for log lines that a peer can cause

	presences presences

	endingApp atomic.Bool    // the app was sent its stop signal
	appSignal syscall.Signal // this one; only for end's goroutine

	groupStopped bool // its whole process group was; likewise

	killedBy string                // a signal that the app did not handle, or SIGKILL; likewise
	images   map[int]process.Image // the app's processes at its stop signal; likewise
	faults   []string              // of the app's end, for the report; likewise
}

// Run starts everything, serves, and returns the exit code once all has stopped. It returns
//
//  1. when something cannot be started: an error, and nothing is left running;
//  2. after a stop signal or a hook: drained, then the app is stopped, then the rest;
//  3. at /quitquitquit: at once;
//  4. when the app exits by itself: responses in flight are delivered, then everything stops, with the app's exit code;
//  5. when the data plane exits by itself: CodeCrashed;
//  6. when ctx ends: at once.
func Run(ctx context.Context, o Options) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := newAgent(o)
	reaped := make(chan struct{})
	go func() { defer close(reaped); process.Reap(ctx) }()
	defer func() { cancel(); <-reaped }()

	var following sync.WaitGroup
	defer func() { cancel(); following.Wait() }()
	starting, interrupt := context.WithCancelCause(ctx)
	following.Go(func() { // the drain does not wait for the service manager, whose queue may be full
		if a.awaitStop(ctx) {
			interrupt(errStopped)
			a.Notifier.Stopping()
		}
	})
	if err := a.start(starting); err != nil {
		if errors.Is(context.Cause(starting), errStopped) {
			return CodeIntended, nil
		}
		return CodeCrashed, err
	}
	defer a.status.server.End()
	defer a.presences.end()
	defer a.stopAdmin()
	following.Go(func() { a.follow(ctx) })
	following.Go(func() { a.followPod(ctx) })
	following.Go(func() { a.Notifier.Watch(ctx, a.alive) })
	following.Go(func() { a.awaitServing(ctx) })
	following.Go(func() { a.handleRestarts(ctx) })
	defer func() { cancel(); following.Wait() }()
	if p, ok := a.plane.(*envoy.Plane); ok { // it holds goroutines and the kernel's socket table
		defer p.Shut()
	}

	report := a.serve(ctx)
	return a.end(ctx, report), nil
}

// newAgent is an agent that has not started.
func newAgent(o Options) *agent {
	return &agent{
		Options: o, log: o.Log, phases: &phases{situation: situation{starts: o.App.Command != nil}},
		requests: cmp.Or(o.Stop.Requests, new(drain.Requests)),
		restarts: make(chan *restartedContainer),
	}
}

// awaitStop waits for a stop signal; it returns false if ctx ends before.
func (a *agent) awaitStop(ctx context.Context) bool {
	for {
		now, changed := a.requests.Look()
		if !now.Terminated.IsZero() {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// serve waits until a termination is requested, and takes the data plane through it; again if that is cancelled.
func (a *agent) serve(ctx context.Context) drain.Report {
	for {
		now, changed := a.requests.Look()
		if !now.Begun {
			select {
			case <-changed:
			case <-a.plane.Exited():
				return drain.Report{Verdict: drain.Crashed, Began: time.Now()}
			case <-ctx.Done():
				a.requests.Send(drain.QuitNow)
			}
			continue
		}
		a.presences.begin()
		report := a.runTermination(ctx, now.First)
		if report.Verdict != drain.Resumed {
			return report
		}
		if a.admin != nil {
			a.admin.Resumed() // a drain that the admin API has requested would never end
		}
		a.phases.ready()
	}
}

// runTermination takes the data plane through one termination, and publishes its report.
func (a *agent) runTermination(ctx context.Context, first drain.Signal) drain.Report {
	began, cfg := time.Now(), a.Settings.Drain()
	istioLog := a.log
	if a.Settings.Compat.Value != meshconfig.CompatIstio {
		if first == drain.Interrupt && a.Terminal != nil {
			cfg = cfg.AtOnce()
		}
		if a.app != nil { // of no mesh: the report has it in lastcall's words
			istioLog = slog.New(slog.DiscardHandler)
		}
	}
	a.Terminal.Draining(first, cfg)
	watcher := a.phases.watcher(cfg)
	entered := watcher.Phase
	watcher.Phase = func(p drain.Phase) {
		if entered(p); p == drain.Finishing && a.app != nil {
			a.stopApp()
		}
	}
	plane := a.plane
	if a.app != nil && a.App.StopSignal == 0 && !a.App.SignalChildOnly && (first != drain.Interrupt || a.Terminal == nil) {
		if _, isHandled := a.handlers(); a.isJob() {
			plane = &job{DataPlane: plane, a: a, began: began}
		} else if !isHandled {
			cfg.App = drain.AppExits // its stop signal comes after the last connection
		}
	}
	report, err := drain.Termination{
		Plane:    plane,
		Config:   cfg,
		Trigger:  first,
		Requests: a.requests,
		Deadline: a.phases.deadline,
		Log:      a.log,
		IstioLog: istioLog,
		Watch:    watcher,
	}.Run(ctx)
	if err != nil { // the settings have been validated before
		a.log.Error("drain not started", "error", err)
		a.plane.Kill()
		report = drain.Report{Verdict: drain.Crashed, Began: began, Faults: []string{err.Error()}}
	}
	report.Trigger = cmp.Or(report.Trigger, first.String())
	if first == drain.Terminate {
		report.Trigger = drain.Terminate.String()
		if sig := a.stopSignal(); sig != syscall.SIGINT {
			report.Trigger = signals.Name(sig)
		}
	}
	for _, c := range report.Open {
		a.status.metrics.cut.WithLabelValues(c.Ending).Inc()
	}
	if !a.isJob() || report.Verdict == drain.Resumed { // a job's report follows its end
		report.Publish(a.log, a.TerminationLog)
	}
	return report
}

// end stops the app within the grace period and returns the exit code:
//
//  1. CodeCut when requests or connections were cut, with FailOnCut;
//  2. CodeCrashed when the data plane has exited by itself;
//  3. the app's own code, but CodeIntended for a service's app that ends by our stop signal (SIGTERM: 143). A job keeps
//     that code: its work is not done, and Kubernetes would count 0 as completed;
//  4. CodeIntended.
func (a *agent) end(ctx context.Context, report drain.Report) int {
	grace := a.Settings.GracePeriod.Value
	if report.Deadline > 0 {
		grace = time.Duration(report.Deadline)
	}
	by := report.Began.Add(grace - killAhead)
	if a.app != nil {
		a.endApp(ctx, by)
		a.reportAppEnd(&report)
	}
	switch report.Verdict {
	case drain.Quit, drain.Exited, drain.Crashed:
		by = time.Now()
	}
	if a.outbound != nil {
		a.endOutbound(ctx, by)
	}
	switch {
	case report.Verdict == drain.Cut && a.FailOnCut:
		return CodeCut
	case report.Verdict == drain.Crashed:
		return CodeCrashed
	case a.app != nil:
		code := a.app.Code()
		if code == process.SignalCode(a.appSignal) && a.endingApp.Load() && len(a.Pipe.Inbound) > 0 {
			return CodeIntended
		}
		return code
	}
	return CodeIntended
}
