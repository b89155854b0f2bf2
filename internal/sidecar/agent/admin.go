package agent

import (
	"context"
	"fmt"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/admin"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// Admin configures Envoy's admin API for the pipe.
type Admin struct {
	Address  string // host:port; empty: none
	Optional bool   // start without it if the address is not available
}

// startAdmin starts the admin API, once there is a pipe.
func (a *agent) startAdmin() error {
	p, isPipe := a.plane.(*pipe.Pipe)
	if a.Admin.Address == "" || !isPipe {
		return nil
	}
	var err error
	a.admin, err = admin.Start(a.Admin.Address, admin.Options{
		Plane:     adminPlane{p, a},
		Quit:      func() { a.requests.Send(drain.QuitNow) },
		DrainTime: a.Settings.DrainDuration.Value,
		IdleAfter: a.Settings.MinimumDrain.Value,
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

// adminPlane adapts the pipe for the admin API.
type adminPlane struct {
	*pipe.Pipe
	a *agent
}

func (p adminPlane) Drain() { _ = p.Pipe.Drain(context.Background()) }

func (p adminPlane) CloseIdle() {
	_ = p.Pipe.CloseIdle(context.Background(), p.a.Settings.IdleGrace.Value)
}

func (p adminPlane) StopAccepting() { _ = p.Pipe.StopAccepting(context.Background()) }
