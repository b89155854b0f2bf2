package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/admin"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// errStopped ends a start that a stop signal interrupts.
var errStopped = errors.New("stopped while starting")

// start starts everything. A stop signal interrupts it by ctx: an Envoy may take long until it serves, or never serve.
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
	if own, ok := a.plane.(*envoy.Plane); ok {
		a.status.merge.proxy = own.Metrics
	}
	a.status.metrics.plane.Store(&a.plane)
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
	cfg := a.Pipe
	cfg.OwnPorts, cfg.Log = []uint16{uint16(a.Settings.StatusPort.Value), uint16(a.Settings.AdminPort.Value)}, a.log
	if at, err := netip.ParseAddrPort(a.Admin.Address); err == nil {
		cfg.OwnPorts = append(cfg.OwnPorts, at.Port())
	}
	if a.App.Command != nil {
		cfg.AppStarts = a.Settings.RestartWait.Value
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

// reload reads the certificates again. Changed files are read without this; the log line confirms the signal.
func (a *agent) reload() {
	p, isPipe := a.plane.(*pipe.Pipe)
	if !isPipe {
		a.log.Info("nothing to reload: Envoy reads its own certificates and configuration")
		return
	}
	a.log.Info("reloading the certificates")
	p.ReloadCertificates()
}

// startAdmin starts the admin API, once there is a pipe.
func (a *agent) startAdmin() error {
	p, isPipe := a.plane.(*pipe.Pipe)
	if a.Admin.Address == "" || !isPipe {
		return nil
	}
	var err error
	a.admin, err = admin.Start(a.Admin.Address, admin.Options{
		Plane:     p,
		Quit:      func() { a.requests.Send(drain.QuitNow) },
		DrainTime: a.Settings.DrainDuration.Value,
		IdleAfter: a.Settings.MinimumDrain.Value,
		IdleGrace: a.Settings.IdleGrace.Value,
		Log:       a.log,
	})
	switch {
	case err == nil:
		a.log.Info("serving Envoy's admin API", "address", a.admin.Addr().String())
	case a.Admin.Optional:
		a.log.Warn("cannot serve Envoy's admin API", "error", err, "hint",
			"choose another port by proxyAdminPort, another address by --admin-address, or off")
	default:
		return fmt.Errorf("%w; choose another by --admin-address, or off", err)
	}
	return nil
}

func (a *agent) stopAdmin() {
	if a.admin != nil {
		a.admin.Close()
		a.admin = nil
	}
}
