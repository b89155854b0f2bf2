package rehearsal

import (
	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

var reactions = map[strategy.SIGTERMBehaviour]podend.Reaction{
	strategy.Exits: podend.Exits, strategy.ClosesListener: podend.Finishes,
}

// podOf is the pod of a strategy: the app, and its sidecar.
func podOf(s strategy.Strategy, c circumstances) podend.Pod {
	app := podend.Container{Name: "app", Role: podend.App, Reaction: reactions[c.app]}
	side := podend.Container{Name: "sidecar", Role: podend.Proxy, Native: s.Sidecar.IsNative(), Reaction: podend.Exits}
	p := podend.Pod{Grace: s.GraceOr(c.grace)}
	if s.Sleep > 0 {
		app.Hook = podend.Hook{Kind: podend.SleepHook, Duration: s.Sleep, IsKnown: true}
		side.Hook = app.Hook
	}
	if s.Netstat {
		side.Hook.Kind = podend.LoopHook
	}
	switch s.Sidecar {
	case strategy.NoSidecar:
		p.Containers = []podend.Container{app}
		return p
	case strategy.Fixed:
		side.Reaction, side.Drain = podend.FixedDrain, s.TerminationDrain
	case strategy.ExitOnZero:
		side.Reaction, side.Drain = podend.PollsZero, istio.MinimumDrain
	case strategy.IstioNative, strategy.HooksNative:
		side.Hook.Kind = podend.NotifyHook
	case strategy.Hooks:
		side.Hook.Kind = podend.AppEndHook
	case strategy.Lastcall:
		side.Reaction = podend.Waits
	case strategy.LastcallNative: // a real Envoy cannot end single requests: they end with it, after the app
		if !c.envoy {
			side.Reaction = podend.Waits
		}
	}
	if s.Sidecar.IsLastcall() {
		app.Hook.Kind = podend.DrainHook
		config := drain.DefaultConfig()
		config.GracePeriod = p.Grace
		if s.Sidecar.IsHooks() {
			config.Margin = timers.DefaultLeave
		}
		p.SetDrain(config)
	}
	p.Containers = []podend.Container{app, side}
	return p
}
