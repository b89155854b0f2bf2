package agent

import (
	"cmp"
	"context"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

func (a *agent) startApp() (err error) {
	if a.app, err = process.Start(a.App.Command); err != nil {
		return err
	}
	a.log.Info("app started", "pid", a.app.Pid(), "command", a.App.Command.String())
	return nil
}

// appAddresses are where connections to the app go.
func (a *agent) appAddresses() []string {
	var out []string
	for _, in := range a.Pipe.Inbound {
		if in.App != "" {
			out = append(out, in.App)
		}
	}
	return out
}

// appPoll is how often appServes connects: the kernel does not report new listeners.
const appPoll = 10 * time.Millisecond

// awaitServing waits for the app, if it is ours, to accept connections.
func (a *agent) awaitServing(ctx context.Context) {
	serves := a.app == nil || a.appServes(ctx)
	if p, ok := a.plane.(*pipe.Pipe); ok {
		p.AppServes()
	}
	if !serves {
		return
	}
	a.phases.Set(func() { a.phases.starts = false })
	a.Notifier.Ready()
	if a.app == nil {
		return
	}
	if a.isJob() {
		started := time.NewTimer(jobStart)
		defer started.Stop()
		select {
		case <-started.C:
		case <-a.app.Done():
		case <-ctx.Done():
			return
		}
	}
	a.warnUnheard()
}

// appServes waits until the app accepts connections on all of its addresses. It returns false if the app exits, ctx
// ends, or a request for the end comes before.
func (a *agent) appServes(ctx context.Context) bool {
	for _, address := range a.appAddresses() {
		var err error
		_ = poll.Until(ctx, appPoll, func() bool {
			var conn net.Conn
			if conn, err = new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
				_ = conn.Close()
				return true
			}
			now, _ := a.requests.Look()
			return a.app.HasExited() || now.Begun
		})
		if err != nil {
			return false
		}
	}
	return true
}

// appExited ends the agent of an app that has exited by itself, once its responses are delivered.
func (a *agent) appExited(ctx context.Context, attrs ...any) {
	a.log.Info("app exited by itself", attrs...)
	a.finishResponses(ctx)
	a.requests.Send(drain.AppEnded)
}

// finishResponses waits, for a second at most, until the responses of an app that has exited are delivered. New
// connections are refused.
func (a *agent) finishResponses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = a.plane.StopAccepting(ctx)
	_ = poll.Until(ctx, time.Millisecond, func() bool {
		now, _ := a.plane.Activity(ctx)
		return now.Busy == 0
	})
}

// killAhead is how long before the kubelet's SIGKILL the agent kills the app, so that its exit is still reported.
const killAhead = 250 * time.Millisecond

// appNotice is the delay of the message on a terminal that lastcall waits for the app.
const appNotice = 500 * time.Millisecond

// appStopSignal is the signal that the app expects: the configured one, or the one that it would have received without
// the agent. From a terminal, and without a signal, it is SIGTERM.
func (a *agent) appStopSignal() syscall.Signal {
	if a.App.StopSignal != 0 {
		return a.App.StopSignal
	}
	sig := a.stopSignal()
	if sig == syscall.SIGINT || sig == syscall.SIGHUP {
		sig = syscall.SIGTERM
	}
	if sig == syscall.SIGTERM && a.reloadsAtTerm() {
		return syscall.SIGINT
	}
	return sig
}

func (a *agent) reloadsAtTerm() bool {
	return slices.ContainsFunc(a.app.Group(), process.ReloadsAtTerm)
}

// stopSignal is the signal that stopped the agent; SIGTERM if none has.
func (a *agent) stopSignal() syscall.Signal {
	if a.Stop.First != nil {
		if sig := a.Stop.First(); sig != 0 {
			return sig
		}
	}
	return syscall.SIGTERM
}

// stopApp sends the app its stop signal, once: many apps exit without delay at the second. A process that handles the
// signal gets it alone, and passes it on as it likes. Otherwise, as for a shell, or for a package manager, which does
// not reach what its shell has started, the whole process group gets it.
func (a *agent) stopApp() {
	if a.app.HasExited() || a.endingApp.Swap(true) {
		return
	}
	a.appSignal = a.appStopSignal()
	pid, name := a.app.Pid(), signals.Name(a.appSignal)
	if a.App.StopSignal == 0 && a.appSignal == syscall.SIGINT && a.reloadsAtTerm() {
		a.log.Info("the app reloads at SIGTERM, as uWSGI does without die-on-term: it gets another signal", "signal", name, "pid", pid)
	}
	pids, isHandled := a.handlers()
	a.images = make(map[int]process.Image, len(pids))
	for _, pid := range pids {
		a.images[pid] = process.ImageOf(pid)
	}
	if !isHandled {
		a.killedBy = name
		a.log.Warn("no process of the app handles its stop signal: it ends at once, whatever it is doing",
			"signal", name, "pids", pids, "hint", hintUnheard+"; --until waits for its work")
	}
	if a.App.SignalChildOnly || process.Handles(pid, a.appSignal) && !process.IsPackageManager(pid) {
		a.log.Info("stopping the app", "signal", name, "pid", pid)
		if err := a.app.Signal(a.appSignal); err != nil {
			a.log.Warn("cannot send the app its stop signal", "pid", pid, "error", err)
		}
		return
	}
	a.stopGroup()
}

// warnReloads warns of processes that have run their program again since their stop signal. They do not end.
func (a *agent) warnReloads() {
	for pid, before := range a.images {
		if !before.HasReloaded(process.ImageOf(pid)) {
			continue
		}
		delete(a.images, pid)
		name := signals.Name(a.appSignal)
		a.faults = append(a.faults, "the app has reloaded at "+name+" instead of ending: set --app-stop-signal")
		a.log.Warn("the app has reloaded at its stop signal instead of ending: the same process runs its program again",
			"signal", name, "pid", pid, "hint", "set --app-stop-signal to the signal that ends it")
	}
}

// stopGroup sends the app's whole process group the stop signal.
func (a *agent) stopGroup() {
	a.log.Info("stopping the app's process group", "signal", signals.Name(a.appSignal), "pids", a.app.Group())
	a.groupStopped = true
	if err := a.app.SignalGroup(a.appSignal); err != nil {
		a.log.Warn("cannot send the app's process group its stop signal", "group", a.app.Pid(), "error", err)
	}
}

// reloadPoll is how often a stopping app's processes are read: the kernel does not report that one runs another
// program.
const reloadPoll = 100 * time.Millisecond

// endApp stops the app, which no longer has requests, and kills it at the deadline by. What the app leaves in its
// process group gets the stop signal, too, and the same time.
func (a *agent) endApp(ctx context.Context, by time.Time) {
	if !a.app.HasExited() {
		a.stopApp()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late, notice, look := time.NewTimer(time.Until(by)), time.NewTimer(appNotice), time.NewTicker(reloadPoll)
	defer late.Stop()
	defer notice.Stop()
	defer look.Stop()
	exited, gone := a.app.Done(), (<-chan struct{})(nil)
	before, _ := a.requests.Look()
	for {
		now, changed := a.requests.Look()
		if now.Interrupts > before.Interrupts {
			before = now
			a.killedBy = "SIGKILL"
			a.log.Warn("the app is killed at the second interrupt", "pid", a.app.Pid())
			a.app.Kill()
		}
		select {
		case <-changed:
		case <-exited:
			if a.endingApp.Load() {
				a.log.Info("app exited", "code", a.app.Code())
			}
			if a.App.SignalChildOnly || len(a.app.Group()) == 0 {
				return
			}
			if !a.groupStopped {
				a.appSignal = cmp.Or(a.appSignal, a.appStopSignal())
				a.stopGroup()
			}
			exited, gone = nil, a.app.GroupDone(ctx)
		case <-gone:
			a.log.Info("the app's process group has ended")
			return
		case <-notice.C:
			if a.stopSignal() == syscall.SIGINT {
				a.Terminal.WaitingForApp(time.Until(by))
			}
		case <-look.C:
			a.warnReloads()
		case <-late.C:
			a.killedBy = "SIGKILL"
			a.log.Warn("app still running at the deadline; killing it", "pid", a.app.Pid(), "pids", a.app.Group())
			a.app.Kill()
		}
	}
}

// follow follows the app, and reloads at the signal for that.
func (a *agent) follow(ctx context.Context) {
	var appDone <-chan struct{}
	if a.app != nil {
		appDone = a.app.Done()
	}
	for {
		select {
		case <-a.Stop.Reload:
			a.reload()
		case <-appDone:
			if appDone = nil; !a.endingApp.Load() {
				a.appExited(ctx, "code", a.app.Code())
			}
		case <-ctx.Done():
			return
		}
	}
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
