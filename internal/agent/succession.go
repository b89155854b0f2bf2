package agent

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
)

// Succession replaces the agent by a new process without losing a connection (a hot restart). internal/hotrestart
// implements it for lastcall run.
type Succession interface {
	// Listen returns the predecessor's listener of this address, or a new one.
	Listen(network, address string) (net.Listener, error)

	// TakeOver reserves the addresses, if this process replaces another. appWithin is then how long the app may take to
	// accept connections; 0 if there is no predecessor.
	TakeOver(addresses []string) (appWithin time.Duration, err error)

	// Ready makes the predecessor drain: this process accepts connections.
	Ready() error

	// Serving is called when the app accepts connections.
	Serving()

	// Run serves requests for a hot restart until ctx ends. alive checks this process; stop makes it drain.
	Run(ctx context.Context, alive func(context.Context) error, stop func())

	// ServeHTTP is POST /hot-restart.
	http.Handler

	// HandedOver is closed when a successor serves.
	HandedOver() <-chan struct{}

	// Signalled takes a stop signal. It returns true when the signal was passed on to a successor instead.
	Signalled() (passedOn bool)

	// Stop rules out a successor. It has to be called before listeners are closed to refuse connections.
	Stop()

	// Leave is the last act of a process that has been replaced. It returns an error when the service has failed.
	Leave(ctx context.Context, by time.Time) error
}

// noSuccession is an agent that is never replaced: one in a pod.
type noSuccession struct{}

func (noSuccession) Listen(network, address string) (net.Listener, error) {
	return listen.Open(network, address)
}
func (noSuccession) TakeOver([]string) (time.Duration, error)                 { return 0, nil }
func (noSuccession) Ready() error                                             { return nil }
func (noSuccession) Serving()                                                 {}
func (noSuccession) Run(context.Context, func(context.Context) error, func()) {}
func (noSuccession) HandedOver() <-chan struct{}                              { return nil }
func (noSuccession) Signalled() bool                                          { return false }
func (noSuccession) Stop()                                                    {}
func (noSuccession) Leave(context.Context, time.Time) error                   { return nil }
func (noSuccession) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "hot restart is not possible here: only lastcall run can be replaced", http.StatusConflict)
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
	for _, in := range a.Inbound {
		addresses = append(addresses, in.Listen)
	}
	if a.Admin.Address != "" && !a.Admin.Optional {
		addresses = append(addresses, a.Admin.Address)
	}
	return addresses
}

func (a *agent) isHandedOver() bool {
	select {
	case <-a.Succession.HandedOver():
		return true
	default:
		return false
	}
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
	report := a.runTermination(ctx, cfg, drain.Terminate)
	report.Trigger = triggerSuccessor
	return report
}

// gracePeriod is the time that this process has for its termination.
func (a *agent) gracePeriod() time.Duration {
	if a.isHandedOver() {
		return a.Settings.ParentShutdown.Value
	}
	return a.Settings.GracePeriod.Value
}
