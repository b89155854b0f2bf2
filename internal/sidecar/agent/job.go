package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

// isJob reports whether the app is ours and has no inbound connections, which would show what it is doing.
func (a *agent) isJob() bool { return a.app != nil && len(a.Pipe.Inbound) == 0 }

// handlers are the app's processes, and whether one of those that get the stop signal handles it. As PID 1 an app
// ignores a signal that it does not handle, below lastcall it would end in the middle of its work. A package manager's
// handler does not count, since what it has started ends by the signal nevertheless.
func (a *agent) handlers() (pids []int, isHandled bool) {
	pids = []int{a.app.Pid()}
	if !a.App.SignalChildOnly {
		pids = a.app.Group()
	}
	stop := a.appStopSignal()
	return pids, slices.ContainsFunc(pids, func(pid int) bool {
		return process.Handles(pid, stop) && !process.IsPackageManager(pid)
	})
}

const hintUnheard = "handle the signal, or set --app-stop-signal to one that the app handles (uWSGI: INT); " +
	"an app that may end at any time: --app-stop-signal with this signal"

// jobStart is how long a job may take to set its handlers before warnUnheard: no event announces them.
const jobStart = 3 * time.Second

// warnUnheard warns of an app that has started and does not handle its stop signal.
func (a *agent) warnUnheard() {
	pids, isHandled := a.handlers()
	if isHandled || len(pids) == 0 || a.App.StopSignal != 0 || a.App.SignalChildOnly || a.phases.isEnding() {
		return
	}
	level, then := slog.LevelInfo, "the app ends at once when its connections have ended, whatever else it is doing"
	if a.isJob() {
		level, then = slog.LevelWarn, "it is not sent before the last call"
	}
	a.log.Log(context.Background(), level, "no process of the app handles the stop signal so far: "+then,
		"signal", signals.Name(a.appStopSignal()), "pids", pids, "hint", hintUnheard)
}

// job is the data plane of a job. While no process handles the stop signal, the job counts as one conversation: it may
// be in the middle of a message, and ends by itself, or at the last call.
type job struct {
	drain.DataPlane
	a *agent

	began     time.Time
	lookedAt  time.Time // when isUnheard was found out
	isUnheard bool
}

// jobPoll is how often a job's processes are read: no event announces a handler.
const jobPoll = time.Second

// unheard reports whether the app lives, and would not get a stop signal but end by it.
func (j *job) unheard() bool {
	if j.a.app.HasExited() {
		return false
	}
	if now := time.Now(); now.Sub(j.lookedAt) >= jobPoll {
		pids, isHandled := j.a.handlers()
		was := j.isUnheard
		if j.isUnheard, j.lookedAt = !isHandled, now; !was && j.isUnheard {
			j.a.log.Warn("no process of the app handles the stop signal: it is not sent before the last call, or until the "+
				"app has exited by itself", "signal", signals.Name(j.a.appStopSignal()), "pids", pids, "hint", hintUnheard)
		}
	}
	return j.isUnheard
}

// Changes returns nil: Activity is polled.
func (j *job) Changes() <-chan struct{} { return nil }

// Activity counts the job.
func (j *job) Activity(ctx context.Context) (drain.Activity, error) {
	now, err := j.DataPlane.Activity(ctx)
	if j.unheard() {
		now.Connections++
		now.Busy++
	}
	return now, err
}

// Open lists the job.
func (j *job) Open(ctx context.Context, most int) ([]drain.Conversation, error) {
	open, err := j.DataPlane.Open(ctx, most)
	if j.unheard() {
		open = append(open, j.a.jobConversation(time.Since(j.began), ""))
	}
	return open, err
}

// LastCall lists the job. It gets its stop signal afterwards.
func (j *job) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	open, err := j.DataPlane.LastCall(ctx, window)
	if j.unheard() {
		open = append(open, j.a.jobConversation(time.Since(j.began), signals.Name(j.a.appStopSignal())))
	}
	return open, err
}

// jobConversation is a job that has not ended by itself, for a report.
func (a *agent) jobConversation(age time.Duration, ending string) drain.Conversation {
	return drain.Conversation{
		Protocol: "job", Request: "the job " + filepath.Base(a.App.Command.Path), Age: drain.Millis(age), Ending: ending,
	}
}
