package drain_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// TestPromise draws terminations at random, with clients, faults and signals of
// every kind, and checks the promise of the package: Run returns before the
// grace period ends; nothing busy is ended before the last call; the verdict is
// cut if, and only if, something was.
func TestPromise(t *testing.T) {
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for range 100 {
		choices := make([]byte, 2*(16+random.IntN(48)))
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		promise(t, choices)
		if t.Failed() {
			t.Fatalf("to repeat it, add to FuzzPromise: f.Add(%#v)", choices)
		}
	}
}

// FuzzPromise is TestPromise with choices that the fuzzer makes, and shortens when one fails:
// go test ./drain -fuzz FuzzPromise.
func FuzzPromise(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(promise)
}

func promise(t *testing.T, choices []byte) {
	sc := draw(&chooser{choices})
	synctest.Test(t, func(t *testing.T) {
		o := sc.run(t)
		o.obey(t)
		o.endInTime(t)
		if t.Failed() {
			t.Logf("%v at %v, grace period %v, margin %v\nsignals %v\nfaults %+v\nphases %s\ncalls %s\nendings %v\n%s",
				o.report.Verdict, o.took, o.cfg.GracePeriod, o.cfg.Margin, sc.signals, sc.faults, phases(o.report), calls(o.calls), o.ways, o.lines)
		}
	})
}

// chooser turns bytes into choices, two for each. When none are left, every choice is the first.
type chooser struct{ left []byte }

// from returns a number of first to last.
func (c *chooser) from(first, last int) int {
	if len(c.left) < 2 {
		return first
	}
	n := int(binary.LittleEndian.Uint16(c.left))
	c.left = c.left[2:]
	return first + n%(last-first+1)
}

// yes is true or false.
func (c *chooser) yes() bool { return c.from(0, 1) == 1 }

func oneOf[T any](c *chooser, of ...T) T { return of[c.from(0, len(of)-1)] }

// endInTime checks when a termination in ExitOnZero may end.
func (o outcome) endInTime(t *testing.T) {
	t.Helper()
	if o.report.Trigger != o.signals[0].sig.String() {
		return // cancelled, and begun again by a SIGTERM at that moment: TestHook has it
	}
	cfg := o.cfg
	for _, n := range o.notices {
		if n.at <= o.took && n.sigkill > 0 {
			cfg.GracePeriod = min(cfg.GracePeriod, n.sigkill)
		}
	}
	margin := min(cfg.Margin, cfg.GracePeriod/4)
	var terminated, stopped, hurried time.Duration = dt.Forever, dt.Forever, dt.Forever
	for _, sig := range o.signals {
		if sig.sig == drain.QuitNow && o.took > sig.at {
			t.Errorf("quitquitquit at %v, left at %v", sig.at, o.took)
		}
		if sig.sig == drain.Hurry || sig.sig == drain.Terminate && sig.at >= stopped+s {
			hurried = min(hurried, sig.at)
		}
		if sig.sig == drain.Terminate {
			stopped = min(stopped, sig.at)
		}
		if sig.sig == drain.Hurry || sig.sig == drain.Terminate {
			terminated = min(terminated, sig.at)
		}
	}
	latest := cfg.GracePeriod - margin/8
	for _, n := range o.notices { // no time may be left then
		if n.at <= o.took && n.at > 0 && cfg.GracePeriod < o.cfg.GracePeriod {
			latest = max(latest, n.at+300*ms) // a call that is broken off, and Kill
		}
	}
	if o.took < terminated {
		latest = o.cfg.GracePeriod + 5*s + 12*s + margin/8 // only a hook: no SIGKILL follows; Resume and Activity have their time
		if o.signals[0].sig == drain.AppHook {
			latest += 12*s + 2*s // the listeners are opened again after a last call: Resume and Drain
		}
	} else if late := terminated + min(margin, 2*s) - margin/8; late > latest {
		latest = late // a hook has used up the time: the kubelet leaves two seconds
		if terminated >= cfg.GracePeriod+5*s {
			latest += 2 * s // SIGTERM during the cancellation, which may take as long as any call
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
	if least := min(o.cfg.MinimumDrain, hurried, cfg.GracePeriod-margin); clean && o.took < least {
		t.Errorf("left at %v, before the minimum drain of %v", o.took, least)
	}
}

// draw makes up a termination whose moments are whole tenths of a second.
func draw(c *chooser) scenario {
	tenths := func(first, last int) time.Duration { return time.Duration(c.from(first, last)) * 100 * ms }
	sc := scenario{polled: c.yes()}

	grace := tenths(10, 400)
	minimum, quiet, idle, margin := tenths(0, 100), tenths(0, 40), tenths(0, 40), tenths(4, 40)
	sc.config = func(cfg *drain.Config) {
		cfg.GracePeriod, cfg.MinimumDrain, cfg.QuietTime, cfg.IdleGrace, cfg.Margin = grace, minimum, quiet, idle, margin
	}

	for i := range c.from(0, 8) {
		at, takes := tenths(-100, 400), tenths(0, 500)
		var cl dt.Client
		switch path := fmt.Sprint("/", i); c.from(0, 5) {
		case 0:
			cl = dt.Get(path, at, takes)
		case 1:
			cl = dt.KeepAlive(path, at, takes)
		case 2:
			cl = dt.Stream(path, at, takes)
		case 3:
			cl = dt.TCP(at, takes)
		case 4:
			cl = dt.Idle(at)
		case 5: // asks three times, one after another
			cl = dt.KeepAlive(path, at, takes/10)
			for range 2 {
				at += takes/10 + tenths(0, 50)
				cl.Requests = append(cl.Requests, dt.Request{Line: "GET " + path, At: at, Takes: takes / 10})
			}
		}
		sc.clients = append(sc.clients, cl)
	}

	for range c.from(0, 4) {
		f := dt.Fault{Method: oneOf(c, all...), From: tenths(0, 300)}
		if c.yes() {
			f.To = f.From + tenths(1, 100)
		}
		switch c.from(0, 3) {
		case 0:
			f.Hang = true
		case 1:
			f.Delay = tenths(1, 40)
		case 2:
			f.Err = errRefused
		case 3:
			f.Method, f.Unknown = dt.Activity, true
		}
		sc.faults = append(sc.faults, f)
	}

	sc.signals = []signal{{0, oneOf(c, drain.Terminate, drain.Terminate, drain.Hook, drain.AppHook, drain.Hurry)}}
	for at, i := time.Duration(0), c.from(0, 2); i > 0; i-- {
		// 30 ms off the tenths: events of one instant have tests of their own.
		at += tenths(0, 200)
		sc.signals = append(sc.signals, signal{at + 30*ms, oneOf(c, drain.Hook, drain.AppHook, drain.Terminate, drain.Terminate, drain.Hurry, drain.QuitNow)})
	}
	if c.from(0, 9) == 9 {
		sc.dies = tenths(1, 300) + 70*ms
	}
	for range c.from(0, 2) {
		at := tenths(0, 200)
		sc.notices = append(sc.notices, notice{at + 50*ms, at + tenths(-20, 200)})
	}
	return sc
}
