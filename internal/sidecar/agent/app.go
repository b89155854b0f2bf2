package agent

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
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

// appPoll is how often awaitApp connects: the kernel does not report new listeners.
const appPoll = 10 * time.Millisecond

// awaitApp waits until the app accepts connections on all of its addresses.
func (a *agent) awaitApp(ctx context.Context, atMost time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for _, address := range a.appAddresses() {
		if err := a.awaitAppOn(ctx, address, atMost); err != nil {
			return err
		}
	}
	return nil
}

func (a *agent) awaitAppOn(ctx context.Context, address string, atMost time.Duration) error {
	var dialer net.Dialer
	tick := time.NewTicker(appPoll)
	defer tick.Stop()
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-a.app.Done():
			return fmt.Errorf("wait for the app to accept connections on %s: it has exited with code %d", address, a.app.Code())
		case <-ctx.Done():
			return fmt.Errorf("wait for the app to accept connections on %s: not within %v: %w", address, atMost, err)
		case <-tick.C:
		}
	}
}

// startupWait is longer than any service manager waits for a start.
const startupWait = 24 * time.Hour

// awaitServing waits for the app, if it is ours, to accept connections.
func (a *agent) awaitServing(ctx context.Context) {
	if a.phases.snapshot().starts && a.awaitApp(ctx, startupWait) != nil {
		return
	}
	a.phases.appAccepts()
	a.Succession.Serving()
}

// appExited ends the agent of an app that has exited by itself, once its responses are delivered.
func (a *agent) appExited(ctx context.Context, attrs ...any) {
	a.log.Info("app exited by itself", attrs...)
	a.finishResponses(ctx)
	a.signal(ctx, drain.AppEnded)
}

// finishResponses waits, for a second at most, until the responses of an app that has exited are delivered. New
// connections are refused.
func (a *agent) finishResponses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	a.Succession.Stop()
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
	switch sig := a.stopSignal(); sig {
	case syscall.SIGINT, syscall.SIGHUP:
		return syscall.SIGTERM
	default:
		return sig
	}
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

// stopSignalName is the name of a drain.Terminate for the report.
func (a *agent) stopSignalName() string {
	if sig := a.stopSignal(); sig != syscall.SIGINT {
		return signals.Name(sig)
	}
	return drain.Terminate.String()
}

// stopApp sends the app its stop signal, once: many apps exit without delay at the second.
func (a *agent) stopApp() {
	if a.app.HasExited() || a.endingApp.Swap(true) {
		return
	}
	a.appSignal = a.appStopSignal()
	if err := a.app.Signal(a.appSignal); err != nil {
		a.log.Warn("cannot send the app its stop signal", "pid", a.app.Pid(), "error", err)
	}
}

// endApp stops the app, which no longer has requests, and kills it at the deadline by.
func (a *agent) endApp(by time.Time) {
	if a.app.HasExited() && !a.endingApp.Load() {
		return
	}
	a.stopApp()
	late, notice := time.NewTimer(time.Until(by)), time.NewTimer(appNotice)
	defer late.Stop()
	defer notice.Stop()
	for {
		select {
		case <-a.app.Done():
			a.log.Info("app exited", "code", a.app.Code())
			return
		case <-notice.C:
			if a.stopSignal() == syscall.SIGINT {
				a.Terminal.WaitingForApp(time.Until(by))
			}
		case s := <-a.drainSignals: // the drain has ended: these signals have no other reader
			if s == drain.Interrupt {
				a.log.Warn("the app is killed at the second interrupt", "pid", a.app.Pid())
				a.app.Kill()
			}
		case <-late.C:
			a.log.Warn("app still running at the deadline; killing it", "pid", a.app.Pid())
			a.app.Kill()
		}
	}
}
