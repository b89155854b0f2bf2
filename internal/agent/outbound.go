package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/outbound"
	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// What the app says to others outlives what others say to it: its last queries,
// its offsets, its goodbyes. So when the inbound side has been drained, the
// outbound side goes on until the app is gone.

func (a *agent) startOutbound() (err error) {
	if a.Outbound == "" {
		return nil
	}
	a.outbound, err = outbound.Start(a.Outbound, a.isOwn, a.log)
	if err == nil {
		a.status.metrics.outbound.Store(a.outbound)
		a.log.Info("carrying outbound", "listen", a.outbound.Addr().String())
	}
	return err
}

// ownPorts are those of the status server and the admin API.
func (a *agent) ownPorts() []uint16 {
	ports := []uint16{uint16(a.Settings.StatusPort.Value), uint16(a.Settings.AdminPort.Value)}
	if at, err := netip.ParseAddrPort(a.Admin.Address); err == nil {
		ports = append(ports, at.Port())
	}
	return ports
}

// isOwn says whether a destination is a capture's port of ours.
func (a *agent) isOwn(to netip.AddrPort) bool {
	if to.Port() == netip.MustParseAddrPort(a.outbound.Addr().String()).Port() {
		return true
	}
	p, ok := a.plane.(*pipe.Pipe)
	if !ok {
		return false
	}
	for _, l := range p.Listeners() {
		if l.App == "" && netip.MustParseAddrPort(l.Addr.String()).Port() == to.Port() {
			return true
		}
	}
	return false
}

// endOutbound waits, until the moment by at most, for the app to be gone, and
// ends the outbound side. The app is known to be gone
//
//  1. when it was our child;
//  2. when SIGTERM has come only after a hook's drain was over: the kubelet ends a
//     native sidecar after the app (KEP-753);
//  3. by its processes, where the pod shares them;
//  4. by the process that its exec hook has left in each container (presences).
//
// Otherwise it may live until the moment by. By Istio's rules the proxy goes as a
// whole, whoever still needs it.
func (a *agent) endOutbound(ctx context.Context, by time.Time) {
	if a.outbound == nil {
		return
	}
	defer a.outbound.Close()
	defer a.presences.end()
	if a.Settings.Mode() != drain.ExitOnZero || !a.awaitAppEnd(ctx, by) {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, sooner(by, time.Now().Add(lastBytes)))
	defer cancel()
	a.outbound.Finish(ctx)
}

// lastBytes is how long what an app wrote just before its end may be on its way, and how long
// the other side has to close its connections.
const lastBytes = time.Second

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// awaitAppEnd returns whether the app is known to be gone at the moment by.
func (a *agent) awaitAppEnd(ctx context.Context, by time.Time) bool {
	if a.app != nil || a.phases.endedAfterDrained() {
		return true
	}
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	a.log.Info("inbound is drained; outbound goes on until the app is gone", "open", a.outbound.Stats().Open)
	began := time.Now()
	var err error
	if sharesProcesses() {
		err = awaitAppGone(ctx, 0, true)
	} else {
		err = a.presences.awaitGone(ctx, max(1, a.AppContainers))
	}
	if err != nil {
		a.log.Warn("the end of the app was not seen within the grace period: its outbound connections end", "open", a.outbound.Stats().Open, "error", err,
			"hint", "a native sidecar ends after the app; a classic one sees its end with shareProcessNamespace, or by lastcall wait as the preStop of every app container")
		return false
	}
	a.log.Info("the app is gone", "after", time.Since(began).Round(time.Millisecond))
	return true
}
