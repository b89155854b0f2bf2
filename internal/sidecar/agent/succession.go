package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hotrestart"
)

// noSuccession is for an agent that is never replaced: one in a pod.
func noSuccession(log *slog.Logger) *hotrestart.Service {
	return hotrestart.NewService(hotrestart.ServiceOptions{
		Refused: errors.New("hot restart is not possible here: only lastcall run can be replaced"), Log: log,
	})
}

// triggerSuccessor is the report's trigger after a hot restart.
const triggerSuccessor = "hot restart"

// startAsSuccessor starts in the order that loses nothing: the predecessor serves until everything that can fail has
// succeeded, and from its first accepted connection this process serves as well as the predecessor.
func (a *agent) startAsSuccessor(ctx context.Context, appWithin time.Duration) (err error) {
	if err := a.startApp(); err != nil {
		return err
	}
	if err := a.awaitApp(ctx, appWithin); err != nil {
		return err
	}
	if err := a.startPlane(ctx); err != nil {
		return err
	}
	a.phases.ready()
	if a.status, err = a.startStatus(); err != nil {
		return err
	}
	if err := a.startAdmin(); err != nil {
		return err
	}
	return a.Succession.Ready()
}

// listenAddresses are those that must be free, or inherited.
func (a *agent) listenAddresses() []string {
	addresses := []string{a.statusAddress()}
	for _, in := range a.Pipe.Inbound {
		addresses = append(addresses, in.Listen)
	}
	if a.Admin.Address != "" && !a.Admin.Optional {
		addresses = append(addresses, a.Admin.Address)
	}
	return addresses
}

// leaveToSuccessor drains a process that a hot restart has replaced, by the same rules, within parentShutdownDuration.
func (a *agent) leaveToSuccessor(ctx context.Context) drain.Report {
	grace := a.gracePeriod()
	leaving, cancel := context.WithCancel(ctx)
	var gone sync.WaitGroup
	gone.Go(func() { _ = a.status.server.Shutdown(leaving) }) // the next connection is the successor's
	defer gone.Wait()
	defer cancel()
	a.stopAdmin()
	_ = a.plane.StopAccepting(ctx)

	cfg := a.Settings.Drain()
	cfg.GracePeriod = grace
	return a.runTermination(ctx, cfg, drain.Terminate, triggerSuccessor)
}

// gracePeriod is the time that this process has for its termination.
func (a *agent) gracePeriod() time.Duration {
	if a.Succession.IsHandedOver() {
		return a.Settings.ParentShutdown.Value
	}
	return a.Settings.GracePeriod.Value
}
