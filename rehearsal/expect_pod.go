package rehearsal

import (
	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

var reactions = map[strategy.SIGTERMBehaviour]course.Reaction{
	strategy.Exits: course.Exits, strategy.ClosesListener: course.Finishes,
}

// podOf is the pod of a strategy: the app, and its sidecar.
func podOf(s strategy.Strategy, c circumstances) course.Pod {
	app := course.Container{Name: "app", Role: course.App, Reaction: reactions[c.app]}
	side := course.Container{Name: "sidecar", Role: course.Proxy, Native: s.Sidecar.IsNative(), Reaction: course.Exits}
	p := course.Pod{Grace: s.GraceOr(c.grace)}
	if s.Sleep > 0 {
		app.Hook = course.Hook{Kind: course.SleepHook, Duration: s.Sleep, IsKnown: true}
		side.Hook = app.Hook
	}
	if s.Netstat {
		side.Hook.Kind = course.LoopHook
	}
	switch s.Sidecar {
	case strategy.NoSidecar:
		p.Containers = []course.Container{app}
		return p
	case strategy.Fixed:
		side.Reaction, side.Drain = course.FixedDrain, s.TerminationDrain
	case strategy.ExitOnZero:
		side.Reaction, side.Drain = course.PollsZero, strategy.MinimumDrain
	case strategy.IstioNative, strategy.HooksNative:
		side.Hook.Kind = course.NotifyHook
	case strategy.Hooks:
		side.Hook.Kind = course.AppEndHook
	case strategy.Lastcall:
		side.Reaction = course.Waits
	case strategy.LastcallNative: // a real Envoy cannot end single requests: they end with it, after the app
		if !c.envoy {
			side.Reaction = course.Waits
		}
	}
	if s.Sidecar.IsLastcall() {
		app.Hook.Kind = course.DrainHook
		timers := drain.DefaultConfig()
		timers.GracePeriod = p.Grace
		if s.Sidecar.IsHooks() {
			timers.Margin = hook.DefaultLeave
		}
		p.SetDrain(timers)
	}
	p.Containers = []course.Container{app, side}
	return p
}
