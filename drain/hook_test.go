package drain_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// TestHook is a drain that a preStop hook begins: it is drained when the hook
// may return, and final only when SIGTERM has come.
func TestHook(t *testing.T) {
	hook := func(more ...signal) []signal { return append([]signal{{0, drain.Hook}}, more...) }
	long := []dt.Client{dt.Get("/delay/60", -500*ms, time.Minute)}
	runAll(t, []scenario{{
		name:    "SIGTERM after it: leaves at once, since nothing is open",
		signals: hook(signal{12 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 12 * s, phases: "draining 5s, waiting 0s, drained 7s",
		calls: "0s Drain, 5s CloseIdle(2s), 12s StopAccepting, 12s CloseIdle(0s), 12s Close",
	}, {
		name:    "it blocks until the busy have ended",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		signals: hook(signal{12 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 12 * s, phases: "draining 5s, waiting 4.5s, drained 2.5s",
	}, {
		name:    "SIGTERM while draining makes it a termination like any other",
		signals: hook(signal{1 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 5 * s, phases: "draining 5s, waiting 0s",
	}, {
		name:    "SIGTERM while waiting too",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		signals: hook(signal{7 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 9500 * ms, phases: "draining 5s, waiting 4.5s",
	}, {
		name:    "SIGTERM at the same moment as the hook: no second SIGTERM",
		signals: hook(signal{0, drain.Terminate}),
		verdict: drain.Clean, leaves: 5 * s, silent: "second time",
	}, {
		name:    "a client that connects in between is waited for",
		clients: []dt.Client{dt.Get("/delay/3", 11500*ms, 3*s)},
		signals: hook(signal{12 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 14500 * ms, endings: "1 answered", late: 2,
		phases: "draining 5s, waiting 0s, drained 7s, waiting 2.5s", heldBy: "GET /delay/3 500ms",
	}, {
		name:    "polled too, although the last look was before",
		polled:  true,
		clients: []dt.Client{dt.Get("/delay/3", 11990*ms, 3010*ms)},
		signals: hook(signal{11995 * ms, drain.Terminate}),
		verdict: drain.Clean, leaves: 15095 * ms, endings: "1 answered",
		phases: "draining 5s, waiting 0s, drained 6.995s, waiting 3.1s",
	}, {
		name:    "a client that comes and goes in between delays nothing",
		clients: []dt.Client{dt.Get("/delay/3", 7*s, 3*s)},
		signals: hook(signal{12 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 12 * s, endings: "1 answered",
	}, {
		name:    "SIGTERM just after the grace period, as a native sidecar's may be: the end",
		signals: hook(signal{31 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 31 * s, phases: "draining 5s, waiting 0s, drained 26s",
	}, {
		name:    "no SIGTERM within the grace period: cancelled",
		clients: []dt.Client{dt.KeepAlive("/", 36*s, s)},
		signals: hook(),
		verdict: drain.Resumed, leaves: 35 * s, phases: "draining 5s, waiting 0s, drained 30s",
		calls:  "0s Drain, 5s CloseIdle(2s), 35s Resume",
		logged: []string{"35s no SIGTERM after preStop hook; drain cancelled"},
		silent: "successfully terminated",
	}, {
		name:    "/drain is a hook here",
		signals: []signal{{0, drain.IstioDrain}},
		verdict: drain.Resumed, leaves: 35 * s,
	}, {
		name:    "busy until the deadline: last call, and no end without SIGTERM",
		clients: long,
		signals: hook(),
		verdict: drain.Resumed, leaves: 35 * s, endings: "1 called", open: "GET /delay/60 28.5s",
		phases: "draining 5s, waiting 23s, last call 0s, drained 7s",
		calls:  "0s Drain, 5s CloseIdle(2s), 5s Open, 28s LastCall(875ms), 35s Resume",
	}, {
		name:    "with it, the end is there",
		clients: long,
		signals: hook(signal{29 * s, drain.Terminate}),
		verdict: drain.Cut, leaves: 29 * s, phases: "draining 5s, waiting 23s, last call 0s, drained 1s",
	}, {
		name:    "a client that keeps connecting: refused at the cap, served again after the cancellation",
		clients: dt.Every(250*ms, "/", 100*ms, 20*s, 600*ms),
		signals: hook(),
		verdict: drain.Resumed, leaves: 35 * s, phases: "draining 10s, waiting 450ms, drained 24.55s",
	}, {
		name:    "the second SIGTERM after it is a second SIGTERM",
		clients: long,
		signals: hook(signal{6 * s, drain.Terminate}, signal{7 * s, drain.Terminate}),
		verdict: drain.Cut, leaves: 7 * s,
	}, {
		name:    "a notice while drained: the last call, and the end",
		signals: hook(signal{7 * s, drain.Hurry}),
		verdict: drain.Clean, leaves: 7 * s, phases: "draining 5s, waiting 0s, drained 2s, last call 0s",
	}, {
		name:    "a notice after the last call of a hook: nothing is left to hurry for",
		clients: long,
		signals: hook(signal{29 * s, drain.Hurry}),
		verdict: drain.Cut, leaves: 29 * s,
	}, {
		name:    "the data plane dies after the last call of a hook",
		clients: long,
		dies:    29 * s,
		signals: hook(),
		verdict: drain.Crashed, leaves: 29 * s,
	}, {
		name:    "SIGTERM while the drain is being cancelled is not lost: a termination of its own",
		faults:  []dt.Fault{{Method: dt.Resume, Delay: 200 * ms}},
		signals: hook(signal{35100 * ms, drain.Terminate}),
		verdict: drain.Clean, leaves: 40200 * ms, phases: "draining 5s, waiting 0s",
	}, {
		name:    "and what the hook's last call has cut is in its report",
		clients: long,
		faults:  []dt.Fault{{Method: dt.Resume, Delay: 200 * ms}},
		signals: hook(signal{35100 * ms, drain.Terminate}),
		verdict: drain.Cut, leaves: 40200 * ms, open: "GET /delay/60 28.5s",
	}, {
		name:    "SIGTERM at the end of the grace period, with a busy connection: two seconds are left",
		clients: []dt.Client{dt.Get("/delay/60", 20*s, time.Minute), dt.Get("/b", 29*s, time.Minute)},
		faults:  []dt.Fault{{Method: dt.LastCall, From: 29 * s, Delay: s}},
		signals: hook(signal{29900 * ms, drain.Terminate}),
		verdict: drain.Cut, leaves: 30900 * ms, open: "GET /delay/60 10.9s, GET /b 1.9s",
	}, {
		name:    "/quitquitquit then, too",
		faults:  []dt.Fault{{Method: dt.Resume, Delay: 200 * ms}},
		signals: hook(signal{35100 * ms, drain.QuitNow}),
		verdict: drain.Quit, leaves: 35100 * ms,
	}, {
		name:    "a notice then, too",
		faults:  []dt.Fault{{Method: dt.Resume, Delay: 200 * ms}},
		signals: hook(signal{35100 * ms, drain.Hurry}),
		verdict: drain.Clean, leaves: 35100 * ms,
	}, {
		name:    "a notice then, after the hook's last call",
		clients: long,
		faults:  []dt.Fault{{Method: dt.Resume, Delay: 200 * ms}},
		signals: hook(signal{35100 * ms, drain.Hurry}),
		verdict: drain.Cut, leaves: 35100 * ms, open: "GET /delay/60 28.5s",
	}, {
		name:    "Resume hangs: it gets 12 s",
		faults:  []dt.Fault{{Method: dt.Resume, Hang: true}},
		signals: hook(),
		verdict: drain.Resumed, leaves: 47 * s, faulted: "resume: Resume: context deadline exceeded",
	}, {
		name:    "Resume hangs and SIGTERM comes: it is broken off after 2 s, and the pod drained",
		faults:  []dt.Fault{{Method: dt.Resume, Hang: true}},
		signals: hook(signal{40 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 47 * s,
	}})
}

// TestHookAlone is a hook without a sidecar: its end is the app's SIGTERM.
func TestHookAlone(t *testing.T) {
	only := func(deadline time.Duration) func(*drain.Config) {
		return func(c *drain.Config) { c.Deadline = deadline }
	}
	scenarios := []scenario{
		{name: "nothing is in flight", config: only(0), verdict: drain.Clean, leaves: 5 * s},
		{name: "a request", config: only(0), clients: []dt.Client{dt.Get("/", 0, 12*s)}, verdict: drain.Clean, leaves: 12 * s},
		{name: "a request beyond the deadline", config: only(25 * s), clients: []dt.Client{dt.Get("/", 0, time.Hour)},
			verdict: drain.Cut, leaves: 25 * s},
		{name: "the deadline is before the minimum drain", config: only(3 * s), verdict: drain.Clean, leaves: 3 * s},
	}
	for i := range scenarios {
		scenarios[i].signals = []signal{{0, drain.HookAlone}}
	}
	runAll(t, scenarios)
}

// TestAppHook is a drain that an app's hook begins in a pod whose sidecar cannot distinguish a
// container's restart from the pod's end: no client is refused before that is certain.
func TestAppHook(t *testing.T) {
	hook := func(more ...signal) []signal { return append([]signal{{0, drain.AppHook}}, more...) }
	long := []dt.Client{dt.Get("/delay/60", -500*ms, time.Minute)}
	often := dt.Every(250*ms, "/", 100*ms, 50*s, 100*ms)
	runAll(t, []scenario{{
		name:    "a client that keeps coming is served throughout",
		clients: often,
		signals: hook(),
		verdict: drain.Resumed, leaves: 35 * s, endings: "140 answered",
		phases: "draining 10s, waiting 0s, drained 25s",
		calls:  "0s Drain, 10s CloseIdle(2s), 35s Resume",
	}, {
		name:    "SIGTERM makes it certain: refused from the cap on",
		clients: often,
		signals: hook(signal{50 * ms, drain.Terminate}),
		verdict: drain.Clean, leaves: 10 * s, endings: "40 answered",
		calls: "0s Drain, 10s StopAccepting, 10s CloseIdle(2s), 10s StopAccepting, 10s CloseIdle(0s), 10s Close",
	}, {
		name:    "the sidecar's own hook does so as well",
		clients: often,
		signals: hook(signal{50 * ms, drain.Hook}, signal{15 * s, drain.Terminate}),
		verdict: drain.Clean, leaves: 15 * s, endings: "40 answered, 20 refused",
	}, {
		name:    "a last call closes nothing for long",
		clients: append(long, dt.Get("/after", 28500*ms, 100*ms), dt.Get("/before", 20*s, 100*ms)),
		signals: hook(),
		verdict: drain.Resumed, leaves: 35 * s, endings: "2 answered, 1 called", open: "GET /delay/60 28.5s",
		phases: "draining 5s, waiting 23s, last call 0s, drained 7s",
		calls:  "0s Drain, 5s CloseIdle(2s), 5s Open, 20s Open, 20.1s Open, 28s LastCall(875ms), 28s Resume, 28s Drain, 35s Resume",
	}, {
		name:    "SIGTERM after that is the end",
		clients: long,
		signals: hook(signal{29 * s, drain.Terminate}),
		verdict: drain.Cut, leaves: 29 * s,
		calls: "0s Drain, 5s CloseIdle(2s), 5s Open, 28s LastCall(875ms), 28s Resume, 28s Drain, 29s LastCall(875ms), 29s Close",
	}, {
		name:    "and what has come in between has its last call",
		clients: append(long, dt.Get("/between", 28500*ms, time.Minute)),
		signals: hook(signal{29 * s, drain.Terminate}),
		verdict: drain.Cut, leaves: 29 * s, endings: "2 called", open: "GET /delay/60 28.5s, GET /between 500ms",
	}})
}

// TestRunsAgain after a drain that was cancelled.
func TestRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := dt.New(dt.Script{Clients: []dt.Client{
			dt.Get("/before", 29*s, 100*ms),
			dt.KeepAlive("/between", 36*s, s),
			dt.Get("/delay/10", 44*s, 10*s),
		}})
		defer plane.Stop()
		var seen []drain.Phase
		watch := drain.Watcher{Phase: func(p drain.Phase) { seen = append(seen, p) }}
		requests := new(drain.Requests)
		termination := drain.Termination{
			Plane: plane, Config: drain.DefaultConfig(), Trigger: drain.Hook, Requests: requests,
			Log: slog.New(slog.DiscardHandler), Watch: watch,
		}

		r, err := termination.Run(t.Context())
		must.Do(t, err)
		if r.Verdict != drain.Resumed || r.Trigger != "hook" || r.Late != 2 {
			t.Errorf("first: %+v", r)
		}
		if last := seen[len(seen)-1]; last != drain.Serving {
			t.Errorf("the watcher's last phase is %v, want serving", last)
		}
		time.Sleep(10 * s)
		if a, _ := plane.Activity(t.Context()); a.Connections != 2 {
			t.Errorf("%d connections between the two, want the kept-alive one and the busy one", a.Connections)
		}
		start := time.Now()
		termination.Trigger = drain.Terminate
		if r, err = termination.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r.Verdict != drain.Clean || r.Trigger != "SIGTERM" || time.Since(start) != 9*s || r.Late != 0 {
			t.Errorf("second: %v after %v: %+v", r.Verdict, time.Since(start), r)
		}
		if last := seen[len(seen)-1]; last != drain.Done {
			t.Errorf("the watcher's last phase is %v, want done", last)
		}
		if got := endings(plane.Endings()); got != "3 answered" {
			t.Errorf("endings: %s, want 3 answered", got)
		}
	})
}

// Two data planes end together, at the moment at which neither is busy, or at the last call of both.
func TestJoin(t *testing.T) {
	long := []dt.Client{dt.Get("/delay/10", -s, 10*s), dt.Idle(-time.Minute)}
	endless := []dt.Client{dt.Get("/delay/3600", -2*s, time.Hour)}
	for name, tt := range map[string]struct {
		one, other dt.Script
		verdict    drain.Verdict
		ends       time.Duration
		late       uint64
		open       string
		heldBy     string
		faulted    bool
	}{
		"one is idle":       {one: dt.Script{Clients: long}, verdict: drain.Clean, ends: 9 * s, heldBy: "GET /delay/10 6s"},
		"the other is idle": {other: dt.Script{Clients: long}, verdict: drain.Clean, ends: 9 * s, heldBy: "GET /delay/10 6s"},
		"both are idle":     {verdict: drain.Clean, ends: 5 * s},
		"both are busy":     {one: dt.Script{Clients: long}, other: dt.Script{Clients: []dt.Client{dt.Get("/late", 4*s, 8*s)}}, verdict: drain.Clean, ends: 12 * s, late: 2, heldBy: "GET /late 5s"},
		"one is polled":     {one: dt.Script{Clients: long, Polled: true}, verdict: drain.Clean, ends: 9 * s},
		"one never ends":    {one: dt.Script{Clients: long}, other: dt.Script{Clients: endless}, verdict: drain.Cut, ends: 28 * s, open: "GET /delay/3600 30s"},
		"neither ends":      {one: dt.Script{Clients: endless}, other: dt.Script{Clients: endless}, verdict: drain.Cut, ends: 28 * s, open: "GET /delay/3600 30s, GET /delay/3600 30s"},
		"one dies":          {one: dt.Script{Clients: long, Dies: 2 * s}, other: dt.Script{Clients: long}, verdict: drain.Clean, ends: 9 * s},
		"both die":          {one: dt.Script{Clients: long, Dies: 2 * s}, other: dt.Script{Clients: long, Dies: 3 * s}, verdict: drain.Crashed, ends: 3 * s},
		"one knows nothing": {one: dt.Script{Faults: []dt.Fault{{Method: dt.Activity, Unknown: true}}}, verdict: drain.Clean, ends: 28 * s, faulted: true},
		"one look fails":    {one: dt.Script{Faults: []dt.Fault{{Method: dt.Activity, Err: errRefused, To: 20 * s}}}, verdict: drain.Clean, ends: 20 * s, faulted: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, other := dt.New(tt.one), dt.New(tt.other)
				defer one.Stop()
				defer other.Stop()
				began := time.Now()
				r, err := drain.Termination{
					Plane: drain.Join(one, other), Config: drain.DefaultConfig(), Log: slog.New(slog.DiscardHandler),
				}.Run(t.Context())
				must.Do(t, err)
				if took := time.Since(began); r.Verdict != tt.verdict || took/(100*ms) != tt.ends/(100*ms) {
					t.Errorf("%s after %v, want %s after %v", r.Verdict, took, tt.verdict, tt.ends)
				}
				if tt.late != 0 && r.Late != tt.late {
					t.Errorf("late: %d, want %d", r.Late, tt.late)
				}
				if got := names(r.Open); got != tt.open {
					t.Errorf("open: %s, want %s", got, tt.open)
				}
				if got := names(r.HeldBy); tt.heldBy != "" && got != tt.heldBy {
					t.Errorf("held by: %s, want %s", got, tt.heldBy)
				}
				if (len(r.Faults) > 0) != tt.faulted {
					t.Errorf("faults: %q", r.Faults)
				}
				if over := append(one.Overlaps(), other.Overlaps()...); len(over) > 0 {
					t.Errorf("calls overlap: %q", over)
				}
				one.Kill() // one that has died has not been killed
				other.Kill()
			})
		})
	}
}

// A hook's drain that is cancelled serves again in all planes.
func TestJoinResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := dt.New(dt.Script{}), dt.New(dt.Script{Clients: []dt.Client{dt.Get("/", 40*s, s)}})
		defer one.Stop()
		defer other.Stop()
		plane := drain.Join(one, other)
		defer plane.Kill()
		termination := drain.Termination{Plane: plane, Config: drain.DefaultConfig(), Trigger: drain.Hook, Log: slog.New(slog.DiscardHandler)}
		if r, err := termination.Run(t.Context()); err != nil || r.Verdict != drain.Resumed {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(10 * s)
		for _, p := range []*dt.Plane{one, other} {
			if got := p.Calls(dt.Resume); len(got) != 1 {
				t.Errorf("Resume was called %d times", len(got))
			}
		}
		if got := endings(other.Endings()); got != "1 answered" {
			t.Error(got)
		}
	})
}
