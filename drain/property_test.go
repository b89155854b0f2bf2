package drain_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// TestPromise draws terminations at random, with clients, faults and signals of
// every kind, and checks the promise of the package: Run returns before the
// grace period ends; nothing busy is ended before the last call; the verdict is
// cut if, and only if, something was.
func TestPromise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sc := draw(rt)
		synctest.Test(t, func(t *testing.T) {
			o := sc.run(t)
			o.obey(rt)
			o.endInTime(rt)
			if rt.Failed() {
				rt.Logf("%v at %v, grace period %v, margin %v\nsignals %v\nfaults %+v\nphases %s\ncalls %s\nendings %v\n%s",
					o.report.Verdict, o.took, o.cfg.GracePeriod, o.cfg.Margin, sc.signals, sc.faults, phases(o.report), calls(o.calls), o.ways, o.lines)
			}
		})
	})
}

// endInTime checks when a termination in ExitOnZero may end.
func (o outcome) endInTime(t *rapid.T) {
	if o.report.Trigger != o.signals[0].sig.String() {
		return // taken back, and begun anew by a SIGTERM in that moment: TestHook has it
	}
	margin := min(o.cfg.Margin, o.cfg.GracePeriod/4)
	var terminated, hurried time.Duration = dt.Forever, dt.Forever
	for _, sig := range o.signals {
		if sig.sig == drain.QuitNow && o.took > sig.at {
			t.Errorf("quitquitquit at %v, left at %v", sig.at, o.took)
		}
		if sig.sig == drain.Hurry || sig.sig == drain.Terminate && terminated < dt.Forever {
			hurried = min(hurried, sig.at)
		}
		if sig.sig == drain.Hurry || sig.sig == drain.Terminate {
			terminated = min(terminated, sig.at)
		}
	}
	latest := o.cfg.GracePeriod - margin/8
	if o.took < terminated {
		latest = o.cfg.GracePeriod + 5*s + 12*s + margin/8 // a hook alone: nobody kills; Resume and a look have their time
		if o.signals[0].sig == drain.AppHook {
			latest += 12*s + 2*s // the listeners are opened again after a last call: Resume and Drain
		}
	} else if late := terminated + min(margin, 2*s) - margin/8; late > latest {
		latest = late // a hook has used up the time: the kubelet leaves two seconds
		if terminated >= o.cfg.GracePeriod+5*s {
			latest += 2 * s // SIGTERM came while the drain was taken back: that may take as long as any call
		}
	}
	if hurried < dt.Forever {
		latest = min(latest, hurried+margin-margin/8)
	}
	if o.dies > 0 {
		latest = min(latest, o.dies)
	}
	if o.took > latest {
		t.Errorf("%s: left at %v, want %v at most", o.report.Verdict, o.took, latest)
	}
	clean := o.report.Verdict == drain.Clean
	if least := min(o.cfg.MinimumDrain, hurried, o.cfg.GracePeriod-margin); clean && o.took < least {
		t.Errorf("left at %v, before the minimum drain of %v", o.took, least)
	}
}

// draw makes up a termination whose moments are whole tenths of a second.
func draw(t *rapid.T) scenario {
	tenths := func(name string, from, to int) time.Duration {
		return time.Duration(rapid.IntRange(from, to).Draw(t, name)) * 100 * ms
	}
	sc := scenario{polled: rapid.Bool().Draw(t, "polled")}

	grace := tenths("grace", 10, 400)
	minimum, quiet, idle, margin := tenths("minimum", 0, 100), tenths("quiet", 0, 40), tenths("idle grace", 0, 40), tenths("margin", 4, 40)
	sc.config = func(c *drain.Config) {
		c.GracePeriod, c.MinimumDrain, c.QuietTime, c.IdleGrace, c.Margin = grace, minimum, quiet, idle, margin
	}

	for i := range rapid.IntRange(0, 8).Draw(t, "clients") {
		at, takes := tenths("at", -100, 400), tenths("takes", 0, 500)
		var c dt.Client
		switch path := fmt.Sprint("/", i); rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			c = dt.Get(path, at, takes)
		case 1:
			c = dt.KeepAlive(path, at, takes)
		case 2:
			c = dt.Stream(path, at, takes)
		case 3:
			c = dt.TCP(at, takes)
		case 4:
			c = dt.Idle(at)
		case 5: // asks three times, one after another
			c = dt.KeepAlive(path, at, takes/10)
			for range 2 {
				at += takes/10 + tenths("pause", 0, 50)
				c.Requests = append(c.Requests, dt.Request{Line: "GET " + path, At: at, Takes: takes / 10})
			}
		}
		sc.clients = append(sc.clients, c)
	}

	for range rapid.IntRange(0, 4).Draw(t, "faults") {
		f := dt.Fault{Method: rapid.SampledFrom(all).Draw(t, "method"), From: tenths("from", 0, 300)}
		if rapid.Bool().Draw(t, "passes") {
			f.To = f.From + tenths("for", 1, 100)
		}
		switch rapid.IntRange(0, 3).Draw(t, "fault") {
		case 0:
			f.Hang = true
		case 1:
			f.Delay = tenths("delay", 1, 40)
		case 2:
			f.Err = errRefused
		case 3:
			f.Method, f.Unknown = dt.Activity, true
		}
		sc.faults = append(sc.faults, f)
	}

	sc.signals = []signal{{0, rapid.SampledFrom([]drain.Signal{drain.Terminate, drain.Terminate, drain.Hook, drain.AppHook, drain.Hurry}).Draw(t, "first")}}
	for at, i := time.Duration(0), rapid.IntRange(0, 2).Draw(t, "signals"); i > 0; i-- {
		// 30 ms beside the tenths: what comes at one instant is tested by hand.
		at += tenths("later", 0, 200)
		sc.signals = append(sc.signals, signal{at + 30*ms, rapid.SampledFrom([]drain.Signal{drain.Hook, drain.AppHook, drain.Terminate, drain.Terminate, drain.Hurry, drain.QuitNow}).Draw(t, "signal")})
	}
	if rapid.IntRange(0, 9).Draw(t, "mortal") == 0 {
		sc.dies = tenths("dies", 1, 300) + 70*ms
	}
	return sc
}
