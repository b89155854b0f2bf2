package agent

import (
	"context"
	"syscall"
	"time"
)

// letAnswersOut waits, for a second at most, until what an app has answered
// before its end has gone through. Nobody new is let in meanwhile.
func (a *agent) letAnswersOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	a.endSuccession()
	_ = a.plane.StopAccepting(ctx)
	for tick := time.NewTicker(time.Millisecond); ; {
		if now, _ := a.plane.Activity(ctx); now.Busy == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// killAhead is how long before the kubelet's SIGKILL the app gets ours, so that
// its end is still told.
const killAhead = 250 * time.Millisecond

// appStopSignal is what the app expects: what is said, or what would have come to it
// without us.
func (a *agent) appStopSignal() syscall.Signal {
	if a.AppStopSignal != 0 {
		return a.AppStopSignal
	}
	return a.Stop.forApp()
}

// endApp asks the app to end, now that nobody talks to it any more, and kills
// it at the moment by.
func (a *agent) endApp(by time.Time) {
	select {
	case <-a.app.Done():
		return
	default:
	}
	a.endingApp.Store(true)
	a.askedApp = a.appStopSignal()
	if err := a.app.Signal(a.askedApp); err != nil {
		a.log.Warn("the app could not be told to stop", "pid", a.app.Pid(), "error", err)
	}
	late := time.NewTimer(time.Until(by))
	defer late.Stop()
	for {
		select {
		case <-a.app.Done():
			a.log.Info("the app has ended", "code", a.app.Code())
			return
		case <-late.C:
			a.log.Warn("the app does not end: killed", "pid", a.app.Pid())
			a.app.Kill()
		}
	}
}
