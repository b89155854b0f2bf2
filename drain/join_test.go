package drain_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

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
				must(t, err)
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
