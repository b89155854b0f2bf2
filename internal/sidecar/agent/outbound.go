package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/outbound"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// Outbound connections outlive inbound ones: the app's last queries, its commits of offsets, its own shutdown. Once the
// inbound side is drained, outbound connections continue until the app has exited.

func (a *agent) startOutbound() (err error) {
	if a.Outbound == "" {
		return nil
	}
	a.outbound, err = outbound.Start(a.Outbound, a.isOwn, a.log)
	if err == nil {
		a.status.metrics.outbound.Store(a.outbound)
		a.log.Info("serving outbound", "listen", a.outbound.Addr().String())
	}
	return err
}

// ownPorts are the ports of the status server and the admin API.
func (a *agent) ownPorts() []uint16 {
	ports := []uint16{uint16(a.Settings.StatusPort.Value), uint16(a.Settings.AdminPort.Value)}
	if at, err := netip.ParseAddrPort(a.Admin.Address); err == nil {
		ports = append(ports, at.Port())
	}
	return ports
}

// isOwn reports whether a destination is a port that receives captured connections.
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

// endOutbound waits until the app has exited, until the deadline by at most, and closes the outbound side. The app is
// known to have exited
//
//  1. when it was our child;
//  2. when SIGTERM arrived only after a hook's drain was complete: the kubelet ends a native sidecar after the app
//     (KEP-753);
//  3. by its processes, where the pod shares them;
//  4. by the process that its exec hook has left in each container (presences).
//
// Otherwise it may run until the deadline. In Istio's modes the proxy ends as a whole, even if the app still needs it.
func (a *agent) endOutbound(ctx context.Context, by time.Time) {
	if a.outbound == nil {
		return
	}
	defer a.outbound.Close()
	defer a.presences.end()
	if a.Settings.Mode() != drain.ExitOnZero || !a.awaitAppEnd(ctx, by) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(time.Until(by), lastBytes))
	defer cancel()
	a.outbound.Finish(ctx)
}

// lastBytes is how long bytes that an app wrote just before its exit may take, and how long the other side has to close
// its connections.
const lastBytes = time.Second

// awaitAppEnd waits for the app's exit until the deadline by. It returns false when the exit was not seen.
func (a *agent) awaitAppEnd(ctx context.Context, by time.Time) bool {
	if a.app != nil || a.phases.snapshot().hooked {
		return true
	}
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	a.log.Info("inbound drained; outbound connections stay open until the app exits", "open", a.outbound.Stats().Open)
	began := time.Now()
	var err error
	if sharesProcesses() {
		err = awaitAppGone(ctx, 0, true)
	} else {
		err = a.presences.awaitGone(ctx, max(1, a.Pod.AppContainers))
	}
	if err != nil {
		a.log.Warn("app still running at the deadline; closing its outbound connections", "open", a.outbound.Stats().Open,
			"error", err,
			"hint", "a native sidecar ends after the app; a classic one detects its exit with shareProcessNamespace, or with lastcall wait as the preStop hook of every app container")
		return false
	}
	a.log.Info("app exited", "after", time.Since(began).Round(time.Millisecond))
	return true
}
