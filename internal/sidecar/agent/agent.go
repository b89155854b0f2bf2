package agent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/admin"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/outbound"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/systemd"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// Exit codes.
const (
	CodeIntended = 0 // an intended exit
	CodeCrashed  = 1 // an unexpected exit
	CodeCut      = 3 // requests or connections were cut, with FailOnCut
)

// Options of an agent, by the part that needs them.
type Options struct {
	Settings *meshconfig.Settings
	Log      *slog.Logger
	Terminal *terminal.Terminal // where a person watches; may be nil

	Pipe     PipeOptions
	Envoy    *envoy.Options // if set, the data plane instead of the pipe, with its own inbound listeners
	Outbound string         // host:port that receives captured outbound connections; empty: none
	Admin    Admin          // Envoy's admin API for the pipe; a real Envoy has its own
	Status   StatusOptions
	Pod      Pod
	App      AppOptions

	Stop     Stop
	Notifier *systemd.Notifier // nil: no service manager

	TerminationLog string // file for the container's termination message; empty: none
	FailOnCut      bool   // end with CodeCut when requests or connections were cut
}

// PipeOptions configure the embedded proxy.
type PipeOptions struct {
	Inbound         []pipe.Inbound
	Limits          pipe.Limits
	H2              http2.Limits
	Endings         pipe.Endings
	AccessLog       io.Writer // nil: none
	AccessLogFormat accesslog.Format
}

// StatusOptions configure the status port, which is Settings.StatusPort.
type StatusOptions struct {
	Address string // host; empty: all addresses

	// HookToken is the TOKEN of GET /wait/TOKEN, the preStop hook of app containers by httpGet, which arrives from the
	// node. SidecarToken is that of the sidecar's own hook. Empty: no such path.
	HookToken, SidecarToken string

	Probes   Probes                 // the app's, and hooks, that an injector redirected to the status port; nil: none
	Metrics  []prometheus.Collector // scraped in addition to the agent's own
	Profiles bool                   // serve Go's profiles, for requests from this pod
}

// Pod describes the agent's pod.
type Pod struct {
	Sidecar       Sidecar // kind of container in which the agent runs
	AppContainers int     // 0 means one
	ExitWithApp   bool    // end a sidecar when the app has exited by itself, as a job does
}

// AppOptions are for an app that the agent starts.
type AppOptions struct {
	Command    *exec.Cmd      // starts with the agent and is stopped after the drain, see end; may be nil
	StopSignal syscall.Signal // 0: the one that stops the agent, but SIGTERM after Ctrl-C and the end of a terminal

	SignalChildOnly bool // the command's process alone gets the stop signal; what it has started may outlive the agent
}

// Stop are the signals to the agent.
type Stop struct {
	Requests *drain.Requests       // gets them, and all else that begins or ends a drain; nil: the agent makes its own
	First    func() syscall.Signal // the first signal that arrived, 0 for none yet; nil: SIGTERM
	Reload   <-chan struct{}       // makes the agent read its certificates, or Envoy's configuration, again
}

// agent is one run.
type agent struct {
	Options
	log      *slog.Logger
	plane    drain.DataPlane
	app      *process.Child // nil without an app
	status   *status
	outbound *outbound.Proxy // nil without one
	admin    *admin.Server   // nil when it is not answered
	phases   *phases

	requests *drain.Requests // everything that begins or ends a drain

	hooks    *hooks
	restarts chan restartedContainer
	throttle logs.Throttle // for log lines that a peer can cause

	presences *presences

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

	if err := a.startUnlessStopped(ctx); err != nil {
		if errors.Is(err, errStopped) {
			return CodeIntended, nil
		}
		return CodeCrashed, err
	}
	defer a.status.server.End()
	defer a.presences.end()
	defer a.stopAdmin()
	var following sync.WaitGroup
	following.Go(func() { a.follow(ctx) })
	following.Go(func() { a.Notifier.Watch(ctx, a.alive) })
	following.Go(func() { // the drain does not wait for the service manager, whose queue may be full
		if a.awaitStop(ctx) {
			a.Notifier.Stopping()
		}
	})
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
		Options: o, log: o.Log, phases: &phases{starts: o.App.Command != nil},
		requests: cmp.Or(o.Stop.Requests, new(drain.Requests)),
		hooks:    newHooks(), restarts: make(chan restartedContainer), presences: newPresences(),
	}
}

// errStopped ends a start that a stop signal interrupts.
var errStopped = errors.New("stopped while starting")

// startUnlessStopped starts everything. A stop signal interrupts the start: an Envoy may take long until it serves, or
// never serve.
func (a *agent) startUnlessStopped(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if a.awaitStop(ctx) {
			cancel(errStopped)
		}
	})
	defer waiting.Wait()
	defer cancel(nil)
	err := a.start(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errStopped) {
		return errStopped
	}
	return err
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

func (a *agent) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			a.abandonStart()
		}
	}()
	if a.status, err = a.startStatus(); err != nil {
		return err
	}
	if a.Envoy != nil && a.App.Command != nil { // it cannot hold connections, and answers them with 503
		if err := a.startApp(); err != nil {
			return err
		}
		a.log.Info("Envoy starts when the app accepts connections", "app", a.appAddresses())
		if a.appServes(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := a.startPlane(ctx); err != nil {
		return err
	}
	a.status.watch(a.plane)
	if err := errors.Join(a.startAdmin(), a.startOutbound()); err != nil {
		return err
	}
	if a.App.Command != nil && a.app == nil {
		if err := a.startApp(); err != nil {
			return err
		}
	}
	a.phases.ready()
	return nil
}

// abandonStart ends the parts that have started. The app has served nothing yet, but it may have begun to work.
func (a *agent) abandonStart() {
	a.stopAdmin()
	if a.plane != nil {
		a.plane.Kill()
	}
	if a.app != nil {
		a.endApp(context.Background(), time.Now().Add(a.Settings.GracePeriod.Value-killAhead))
	}
	if a.status != nil {
		a.status.server.End()
	}
}

// startPlane starts the data plane.
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
		Inbound: a.Pipe.Inbound, Limits: a.Pipe.Limits, H2: a.Pipe.H2, Endings: a.Pipe.Endings,
		OwnPorts: a.ownPorts(), Log: a.log,
	}
	if a.App.Command != nil {
		cfg.AppStarts = a.Settings.RestartWait.Value
	}
	if a.Pipe.AccessLog != nil {
		cfg.AccessLog = accesslog.New(a.Pipe.AccessLog, a.Pipe.AccessLogFormat)
	}
	p, err := pipe.Start(cfg)
	if err != nil {
		return err
	}
	a.plane = p
	for i, in := range a.Pipe.Inbound {
		app := cmp.Or(in.App, "(original destination)")
		a.log.Info("serving inbound", "listen", p.Addr(i).String(), "app", app, "protocol", in.Protocol.String())
	}
	return nil
}

// follow follows the app, and reloads at the signal for that.
func (a *agent) follow(ctx context.Context) {
	var appDone <-chan struct{}
	if a.app != nil {
		appDone = a.app.Done()
	}
	appGone := a.followApp(ctx)
	for {
		select {
		case <-a.Stop.Reload:
			a.reload()
		case <-appGone:
			appGone = nil
			a.appExited(ctx)
		case <-appDone:
			if appDone = nil; !a.endingApp.Load() {
				a.appExited(ctx, "code", a.app.Code())
			}
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the certificates, or Envoy's configuration, again. Changed files are read without this; the log line
// confirms the signal.
func (a *agent) reload() {
	switch p := a.plane.(type) {
	case *pipe.Pipe:
		a.log.Info("reloading the certificates")
		p.ReloadCertificates()
	case *envoy.Plane:
		if err := p.Reload(); err != nil {
			a.log.Warn("nothing to reload", "error", err)
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
			plane, cfg.ExitAt = &job{DataPlane: plane, a: a, began: began}, 0
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
		report.Trigger = a.stopSignalName()
	}
	a.status.metrics.count(report)
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
	a.endOutbound(ctx, by)
	switch {
	case report.Verdict == drain.Cut && a.FailOnCut:
		return CodeCut
	case report.Verdict == drain.Crashed:
		return CodeCrashed
	case a.app != nil:
		return a.appCode()
	}
	return CodeIntended
}

// reportAppEnd adds the end of the app to the report. That of a job is published only here, another one again.
func (a *agent) reportAppEnd(report *drain.Report) {
	report.Faults = append(report.Faults, a.faults...)
	if a.isJob() {
		if age := time.Since(report.Began); a.killedBy != "" && report.Verdict == drain.Clean {
			report.Verdict, report.Open = drain.Cut, append(report.Open, a.jobConversation(age, a.killedBy))
		}
		report.Duration = drain.Millis(time.Since(report.Began))
	} else if len(a.faults) == 0 {
		return
	}
	report.Publish(a.log, a.TerminationLog)
}

// appCode is the agent's exit code that follows from the app's; see end.
func (a *agent) appCode() int {
	code := a.app.Code()
	if code == process.SignalCode(a.appSignal) && a.endingApp.Load() && len(a.Pipe.Inbound) > 0 {
		return CodeIntended
	}
	return code
}
