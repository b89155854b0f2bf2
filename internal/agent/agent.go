package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/admin"
	"github.com/lastcall-dev/lastcall/internal/envoy"
	"github.com/lastcall-dev/lastcall/internal/hotrestart"
	"github.com/lastcall-dev/lastcall/internal/logs"
	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/pipe"
	"github.com/lastcall-dev/lastcall/internal/process"
)

// Exit codes.
const (
	CodeIntended = 0 // every end that was asked for
	CodeCrashed  = 1 // an end that was not
	CodeCut      = 3 // conversations were cut, with FailOnCut
)

// Options of an agent.
type Options struct {
	Settings        *meshconfig.Settings
	Inbound         []pipe.Inbound
	Limits          pipe.Limits
	H2              pipe.H2Limits
	Endings         pipe.Endings
	AccessLog       io.Writer // of the pipe; nil: none
	AccessLogFormat accesslog.Format

	// Envoy, if given, is the data plane in place of the pipe. Its Inbound is
	// in its own options.
	Envoy *envoy.Options

	// Outbound is where captured outbound connections come, host:port; empty for
	// nowhere.
	Outbound string

	// HookToken opens GET /wait/TOKEN to everybody, for preStop hooks of app
	// containers by httpGet; SidecarToken does so for the sidecar's own. Empty for
	// nobody.
	HookToken, SidecarToken string

	// Sidecar is how the agent stands in its pod.
	Sidecar Sidecar

	// AppContainers is how many app containers the pod has; 0 is one.
	AppContainers int

	// Probes answers the app's probes and hooks that were turned to the status
	// port; its zero value has none.
	Probes Probes

	// StatusAddress is the host of the status server; empty is every address.
	// Its port is Settings.StatusPort.
	StatusAddress string

	// Admin is Envoy's admin API for the pipe; a real Envoy has its own.
	Admin Admin

	// TerminationLog is the file of the container's termination message; empty
	// for none.
	TerminationLog string

	// FailOnCut makes a termination that cut conversations end with CodeCut.
	FailOnCut bool

	// ExitWithApp ends a sidecar when the app has ended by itself, as a job's
	// does.
	ExitWithApp bool

	// LeanScrape leaves Envoy's gauges that only a drain needs out of
	// /stats/prometheus.
	LeanScrape bool

	// App, if there is one, is started with the agent and ended after the drain;
	// its exit code becomes the agent's, as end says.
	App *exec.Cmd

	// Succession is how a successor takes over; the zero value is never.
	Succession Succession

	// Signals brings what the platform says; see NotifyStop.
	Signals <-chan drain.Signal

	// Stop knows which signals came by Signals; nil: SIGTERM.
	Stop *Stop

	// AppStopSignal tells App to stop; 0: the signal that Stop has got.
	AppStopSignal syscall.Signal

	// Reload brings the wish that certificates be read anew; see ReloadSignals.
	Reload <-chan os.Signal

	Log *slog.Logger

	// Metrics are scraped beside the agent's own.
	Metrics []prometheus.Collector
}

// agent is one run.
type agent struct {
	Options
	log      *slog.Logger
	plane    drain.DataPlane
	app      *process.Child // nil without an app
	status   *status
	outbound *pipe.Outbound // nil without one
	admin    *admin.Server  // nil when it is not answered
	way      *way
	signals  chan drain.Signal
	restarts chan restartedContainer
	throttle logs.Throttle // of what peers can cause

	presences *presences

	endingApp  atomic.Bool    // the app has been told to stop
	askedApp   syscall.Signal // by this signal; of end's goroutine
	succession succession
	telling    sync.WaitGroup // of the service manager, that the service stops
}

// Run starts everything, serves, and returns the exit code when all has ended.
// It ends in one of these ways:
//
//  1. something could not be started: an error, nothing is left running;
//  2. told to stop (Signals, the status server): drained, then the app is ended,
//     then the rest;
//  3. /quitquitquit: at once;
//  4. the app ends by itself: what it has answered is delivered, then all ends
//     with its exit code;
//  5. the data plane ends by itself: CodeCrashed;
//  6. a successor has taken over: drained, then the app is ended, within
//     parentShutdownDuration;
//  7. ctx ends: at once.
func Run(ctx context.Context, o Options) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &agent{Options: o, log: o.Log, way: newWay(), signals: make(chan drain.Signal, 16), restarts: make(chan restartedContainer), presences: newPresences()}
	a.succession.handed = make(chan struct{})
	reaped := make(chan struct{})
	defer a.removePIDFile()
	go func() { defer close(reaped); process.Reap(ctx) }()
	defer func() { cancel(); <-reaped }()

	if err := a.startUnlessTold(ctx); err != nil {
		if errors.Is(err, errTold) {
			return CodeIntended, nil
		}
		return CodeCrashed, err
	}
	defer a.status.close()
	defer a.presences.end()
	defer a.stopAdmin()
	var hearing sync.WaitGroup
	hearing.Go(func() { a.hear(ctx) })
	hearing.Go(func() { a.attend(ctx) })
	hearing.Go(func() { a.attendRestarts(ctx) })
	defer func() { cancel(); a.endSuccession(); hearing.Wait(); a.telling.Wait() }()
	if p, ok := a.plane.(interface{ Shut() }); ok {
		defer p.Shut()
	}

	report := a.serve(ctx)
	return a.end(ctx, report), nil
}

// errTold is the end of a start that was told to stop.
var errTold = errors.New("told to stop before the start was over")

// startUnlessTold starts everything. An Envoy may take long to serve, or never
// do: who is told to stop meanwhile does not wait for it.
func (a *agent) startUnlessTold(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case s := <-a.Signals:
			a.signals <- s
			cancel(errTold)
			a.log.Info("told to stop", "by", a.Stop.name(s))
		case <-started:
		}
	}()
	err := a.start(ctx)
	close(started)
	<-heard
	if err != nil && errors.Is(context.Cause(ctx), errTold) {
		return errTold
	}
	return err
}

func (a *agent) start(ctx context.Context) (err error) {
	if a.Succession.succeeds() {
		return a.startAsSuccessor(ctx)
	}
	if a.status, err = a.startStatus(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.stopAdmin()
			a.status.close()
		}
	}()
	if err := a.startPlane(ctx); err != nil {
		return err
	}
	a.status.watch(a.plane)
	if err := errors.Join(a.startAdmin(), a.startOutbound()); err != nil {
		a.plane.Kill()
		return err
	}
	if a.App != nil {
		if err := a.startApp(); err != nil {
			a.plane.Kill()
			return err
		}
		a.way.awaitApp()
	}
	a.way.ready()
	if h := a.Succession.Handover; h != nil {
		if err := h.Ready(); err != nil {
			a.killApp()
			a.plane.Kill()
			return err
		}
	}
	return nil
}

// startPlane starts what carries the traffic.
func (a *agent) startPlane(ctx context.Context) error {
	if a.Envoy != nil {
		p, err := envoy.Start(ctx, *a.Envoy)
		if err != nil {
			return err
		}
		a.plane = p
		return nil
	}
	cfg := pipe.Config{
		Inbound: a.Inbound, Limits: a.Limits, H2: a.H2, Endings: a.Endings,
		OwnPorts: a.ownPorts(), Listen: a.Succession.listen, Log: a.log,
	}
	if a.AccessLog != nil {
		cfg.AccessLog = accesslog.New(a.AccessLog, a.AccessLogFormat)
	}
	p, err := pipe.Start(cfg)
	if err != nil {
		return err
	}
	a.plane = p
	for i, in := range a.Inbound {
		app := in.App
		if app == "" {
			app = "where captured connections want to go"
		}
		a.log.Info("serving inbound", "listen", p.Addr(i).String(), "app", app, "protocol", in.Protocol.String())
	}
	return nil
}

// hear brings everything that can end the agent into one channel.
func (a *agent) hear(ctx context.Context) {
	var appDone <-chan struct{}
	if a.app != nil {
		appDone = a.app.Done()
	}
	appGone := a.followApp(ctx)
	for {
		select {
		case s := <-a.Signals:
			a.tell(ctx, s)
			a.log.Info("told to stop", "by", a.Stop.name(s))
		case <-a.Reload:
			a.reload()
		case <-a.succession.handed:
			a.hearSuccessor(ctx)
			return
		case <-appGone:
			appGone = nil
			a.log.Info("the app has ended by itself")
			a.letAnswersOut(ctx)
			a.tell(ctx, drain.AppEnded)
		case <-appDone:
			appDone = nil
			if a.endingApp.Load() {
				continue
			}
			a.log.Info("the app has ended by itself", "code", a.app.Code())
			a.letAnswersOut(ctx)
			a.tell(ctx, drain.AppEnded)
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the certificates anew. Who asks for it wants to know that it was
// heard: files that change are read without a word from anybody.
func (a *agent) reload() {
	p, isPipe := a.plane.(*pipe.Pipe)
	if !isPipe {
		a.log.Info("there is nothing to read anew: a real Envoy has its own configuration")
		return
	}
	a.log.Info("reading the certificates anew")
	p.ReloadCertificates()
}

// tell hands a signal to the drain, or begins it. It does so first of all: who
// has asked by HTTP may have gone already with the answer (curl does), and with
// him ctx.
func (a *agent) tell(ctx context.Context, s drain.Signal) {
	select {
	case a.signals <- s:
		return
	default:
	}
	select {
	case a.signals <- s:
	case <-ctx.Done():
	}
}

// serve waits for the first signal and takes the data plane through the
// termination that it begins, again and again when that is taken back.
func (a *agent) serve(ctx context.Context) drain.Report {
	for {
		var first drain.Signal
		select {
		case first = <-a.signals:
		case <-a.succession.handed:
			report := a.leave(ctx)
			a.status.count(report)
			report.Tell(a.log, a.TerminationLog)
			return report
		case <-a.plane.Exited():
			return drain.Report{Verdict: drain.Crashed, Began: time.Now()}
		case <-ctx.Done():
			first = drain.QuitNow
		}
		a.endSuccession()
		a.presences.begin()
		if first == drain.Terminate || first == drain.Interrupt {
			// Its socket's queue may be full, and the drain does not wait for that.
			a.telling.Go(func() { a.tellSystemd((*hotrestart.Notifier).Stopping) })
		}
		report := a.terminate(ctx, a.Settings.Drain(), first)
		if first == drain.Terminate {
			report.Trigger = a.Stop.name(first)
		}
		a.status.count(report)
		report.Tell(a.log, a.TerminationLog)
		if report.Verdict != drain.Resumed {
			return report
		}
		a.forgetAdmin()
		a.way.ready()
	}
}

// terminate takes the data plane through one termination.
func (a *agent) terminate(ctx context.Context, cfg drain.Config, first drain.Signal) drain.Report {
	began := time.Now()
	report, err := drain.Termination{
		Plane:   a.plane,
		Config:  cfg,
		Trigger: first,
		Signals: a.signals,
		Log:     a.log,
		Watch:   a.way.watcher(cfg.GracePeriod),
	}.Run(ctx)
	if err != nil { // the settings have been validated before
		a.log.Error("drain not started", "error", err)
		a.plane.Kill()
		return drain.Report{Verdict: drain.Crashed, Trigger: first.String(), Began: began, Faults: []string{err.Error()}}
	}
	return report
}

// end ends the app within the grace period and gives the exit code:
//
//  1. CodeCut for a cut with FailOnCut, whatever else there is;
//  2. CodeCrashed when the data plane has ended by itself;
//  3. the app's own code, but CodeIntended for a service's app that ends by our
//     signal (SIGTERM: 143): it was asked to. A job's keeps that code: its work is not done,
//     and with 0 Kubernetes would take it for completed;
//  4. CodeIntended.
func (a *agent) end(ctx context.Context, report drain.Report) int {
	by := report.Began.Add(a.gracePeriod() - killAhead)
	if a.app != nil {
		a.endApp(by)
	}
	switch report.Verdict {
	case drain.Quit, drain.Exited, drain.Crashed:
		by = time.Now()
	}
	a.endOutbound(ctx, by)
	code := CodeIntended
	switch {
	case a.isHandedOver():
		code = a.bequeath(ctx, by)
	case a.app != nil:
		code = a.appCode()
	}
	switch {
	case report.Verdict == drain.Cut && a.FailOnCut:
		return CodeCut
	case report.Verdict == drain.Crashed:
		return CodeCrashed
	}
	return code
}

// appCode is the exit code that the app's own comes to; see end.
func (a *agent) appCode() int {
	code := a.app.Code()
	if code == 128+int(a.askedApp) && a.endingApp.Load() && len(a.Inbound) > 0 {
		return CodeIntended
	}
	return code
}

// errNotDrained is what a hook is told when the agent ends in another way.
var errNotDrained = errors.New("the agent ended before the drain was over")
