package podend

import (
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

const s = time.Second

// When pods cut a request, end, and are killed, by how soon polls notice what they wait for.
func TestCourse(t *testing.T) {
	app := func(r Reaction, hook Hook) Container {
		return Container{Name: "app", Role: App, Reaction: r, Hook: hook}
	}
	fixed := Container{Name: "proxy", Role: Proxy, Reaction: FixedDrain, Drain: 5 * s}
	polls := Container{Name: "proxy", Role: Proxy, Reaction: PollsZero, Drain: 5 * s}
	loop := fixed
	loop.Hook.Kind = LoopHook
	native := Container{Name: "proxy", Role: Proxy, Native: true, Hook: Hook{Kind: NotifyHook}, Reaction: Exits}
	ours := Container{Name: "proxy", Role: Proxy, Reaction: Waits}
	waits := Hook{Kind: DrainHook}
	sleep5 := Hook{Kind: SleepHook, Duration: 5 * s, IsKnown: true}
	after := Hook{Kind: DrainHook, Own: &Hook{Kind: ScriptHook, Duration: 60 * s, IsKnown: true}}
	blind := Container{Name: "proxy", Role: Proxy, Reaction: Waits, Blind: true}
	early := Container{Name: "proxy", Role: Proxy, Native: true, Reaction: FixedDrain, Drain: 5 * s, Hook: waits}
	helper := Container{Name: "helper", Role: Aside, Reaction: Finishes, Hook: sleep5}
	for _, tt := range []struct {
		name      string
		grace     time.Duration
		app, side Container
		traffic   Traffic
		cut, gone time.Duration
		killed    bool
	}{
		{"fixed drain", 30 * s, app(Finishes, Hook{}), fixed, Traffic{Busy: 3 * s}, 5 * s, 5 * s, false},
		{"fixed drain, a longer request", 30 * s, app(Finishes, Hook{}), fixed, Traffic{Busy: 10 * s}, 5 * s, 10 * s, false},
		{"polls for zero", 30 * s, app(Finishes, Hook{}), polls, Traffic{Busy: 9500 * time.Millisecond}, 30 * s, 10 * s, false},
		{"polls for zero, early", 30 * s, app(Finishes, Hook{}), polls, Traffic{Busy: 9500 * time.Millisecond, Polls: Early}, 30 * s, 9500 * time.Millisecond, false},
		{"polls for zero, late", 30 * s, app(Finishes, Hook{}), polls, Traffic{Busy: 9500 * time.Millisecond, Polls: Late}, 30 * s, 10500 * time.Millisecond, false},
		{"polls for zero, an idle connection", 30 * s, app(Finishes, Hook{}), polls, Traffic{Busy: 3 * s, Idle: true}, 30 * s, 30 * s, true},
		{"a loop, early", 30 * s, app(Finishes, Hook{}), loop, Traffic{Busy: 3 * s, Polls: Early}, 5 * s, 5 * s, false},
		{"a loop, late", 30 * s, app(ServesOn, Hook{}), loop, Traffic{Busy: 10 * s, Polls: Late}, 16 * s, 16 * s, false},
		{"a fixed drain that begins with the hook", 30 * s, app(Finishes, Hook{}), early, Traffic{Busy: 8 * s}, 8 * s, 8 * s, false},
		{"native sidecar, the app exits", 30 * s, app(Exits, Hook{}), native, Traffic{Busy: 10 * s}, 0, 0, false},
		{"a sleep as long as the grace period", 12 * s, app(Exits, Hook{Kind: SleepHook, Duration: 15 * s}), fixed, Traffic{Busy: 3 * s}, 5 * s, 12 * s, false},
		{"an app that continues", 8 * s, app(Finishes, Hook{}), polls, Traffic{Busy: 10 * s}, 8 * s, 8 * s, true},
		{"a grace period of zero", 0, app(Finishes, Hook{}), helper, Traffic{Busy: 8 * s}, 2 * s, 2 * s, true},
		{"a grace period of zero and a hook", 0, app(Finishes, sleep5), helper, Traffic{Busy: 8 * s}, 3 * s, 3 * s, true},
		{"a helper that finishes has nothing to finish", 30 * s, app(Exits, Hook{}), helper, Traffic{Busy: 8 * s}, 0, 5 * s, false},
		{"lastcall", 30 * s, app(Exits, waits), ours, Traffic{Busy: 10 * s, Idle: true}, 10 * s, 10 * s, false},
		{"lastcall, the minimum drain", 30 * s, app(Exits, waits), ours, Traffic{Busy: 1 * s}, 5 * s, 5 * s, false},
		{"lastcall, and the app's own hook without an end", 30 * s, app(Exits, after), ours, Traffic{Busy: 10 * s}, 28 * s, 28 * s, false},
		{"lastcall, the last call, and such a hook", 9 * s, app(Exits, after), ours, Traffic{Busy: 10 * s}, 7 * s, 8 * s, false},
		{"lastcall that does not see the app's end", 14 * s, app(Finishes, sleep5), blind, Traffic{Busy: 8 * s}, 12 * s, 14 * s, false},
		{"lastcall, the last call", 7 * s, app(Exits, waits), ours, Traffic{Busy: 10 * s}, 5250 * time.Millisecond, 5250 * time.Millisecond, false},
	} {
		p := Pod{Grace: tt.grace, Containers: []Container{tt.app, tt.side}}
		if tt.side.Reaction == Waits {
			timers := drain.DefaultConfig()
			timers.GracePeriod = tt.grace
			p.SetDrain(timers)
		}
		c := p.Course(tt.traffic)
		if c.Cut != tt.cut || c.Gone != tt.gone || c.Killed != tt.killed {
			t.Errorf("%s: cut at %v by %s, gone at %v, killed %v; want %v, %v, %v", tt.name, c.Cut, c.CutBy, c.Gone, c.Killed, tt.cut, tt.gone, tt.killed)
		}
	}
}
