package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// What the app says to others outlives what others say to it: its last queries,
// its offsets, its goodbyes. So when the inbound side has been drained, the
// outbound side goes on until the app is gone.

func (a *agent) startOutbound() (err error) {
	if a.Outbound == "" {
		return nil
	}
	a.outbound, err = pipe.StartOutbound(a.Outbound, a.isOwn, a.log)
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
// ends the outbound side. The app is known to be gone when it was our child, or
// when SIGTERM has come only after a hook's drain was over: the kubelet ends a
// native sidecar after the app (KEP-753). By Istio's rules the proxy goes as a
// whole, whoever still needs it.
func (a *agent) endOutbound(ctx context.Context, by time.Time) {
	if a.outbound == nil {
		return
	}
	defer a.outbound.Close()
	if a.app != nil || a.way.endedAfterDrained() || a.Settings.Mode() != drain.ExitOnZero {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	a.log.Info("inbound is drained; outbound goes on until the app is gone", "open", a.outbound.Stats().Open)
	began := time.Now()
	if err := awaitAppGone(ctx, goneAtTheEnd, true); err != nil {
		a.log.Warn("the app is still there: it is left without its way out", "open", a.outbound.Stats().Open, "error", err)
		return
	}
	a.log.Info("the app is gone", "after", time.Since(began).Round(time.Millisecond))
}
