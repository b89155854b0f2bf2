package drain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

func finish(f *drain.Finish) string {
	if f == nil {
		return "none"
	}
	return fmt.Sprintf("%v: %d, %d ended, %d dropped, %s", time.Duration(f.After), f.Opaque, f.Ended, f.Dropped, f.App)
}

// opaque is a connection that the app ends so long after its SIGTERM.
func opaque(finishes time.Duration) dt.Client {
	return dt.Client{Protocol: "tcp", At: -time.Minute, Leaves: dt.Forever, Finishes: finishes}
}

// TestFinish is a pod with connections that only its app can end.
func TestFinish(t *testing.T) {
	app := func(is drain.AppEnd) func(*drain.Config) { return func(c *drain.Config) { c.App = is } }
	two := []dt.Client{opaque(s), opaque(3 * s)}
	runAll(t, []scenario{{
		name: "an app that finishes gets its SIGTERM when the draining phase ends", config: app(drain.AppFinishes), clients: two,
		verdict: drain.Clean, leaves: 8 * s, phases: "draining 5s, waiting 0s, finishing 3s", endings: "2 answered",
		finish: "5s: 2, 2 ended, 0 dropped, finishes",
		calls:  "0s Drain, 5s CloseIdle(2s), 5s Open, 5s StopAccepting, 5s CloseIdle(0s), 6s Open, 8s StopAccepting, 8s CloseIdle(0s), 8s Close",
	}, {
		name: "an HTTP request is waited for first", config: app(drain.AppFinishes), clients: append([]dt.Client{dt.Get("/delay/10", -s, 10*s)}, two...),
		verdict: drain.Clean, leaves: 12 * s, phases: "draining 5s, waiting 4s, finishing 3s", endings: "3 answered",
		finish: "9s: 2, 2 ended, 0 dropped, finishes",
	}, {
		name: "an idle connection has its idle grace", config: app(drain.AppFinishes), clients: append([]dt.Client{dt.KeepAlive("/", 4*s, 500*ms)}, two...),
		verdict: drain.Clean, leaves: 9 * s, finish: "6s: 2, 2 ended, 0 dropped, finishes",
	}, {
		name: "without opaque connections nothing changes", config: app(drain.AppFinishes), clients: []dt.Client{dt.Get("/delay/10", -s, 10*s)},
		verdict: drain.Clean, leaves: 9 * s, phases: "draining 5s, waiting 4s", finish: "none",
	}, {
		name: "bounded by the last call", config: app(drain.AppFinishes), clients: []dt.Client{opaque(s), opaque(time.Minute)},
		verdict: drain.Cut, leaves: 28 * s, phases: "draining 5s, waiting 0s, finishing 23s, last call 0s", endings: "1 answered, 1 called",
		finish: "5s: 2, 1 ended, 0 dropped, finishes",
	}, {
		name: "an app that exits keeps its connections until the last call", config: app(drain.AppExits), clients: two,
		verdict: drain.Cut, leaves: 28 * s, phases: "draining 5s, waiting 23s, last call 0s", finish: "none",
	}, {
		name: "auto is a trial just before the last call", clients: []dt.Client{opaque(s), opaque(2 * s)},
		verdict: drain.Clean, leaves: 27 * s, phases: "draining 5s, waiting 20s, finishing 2s", finish: "25s: 2, 2 ended, 0 dropped, finishes",
	}, {
		name: "which shows an app that exits", clients: []dt.Client{opaque(-1), opaque(-1)},
		verdict: drain.Cut, leaves: 25 * s, finish: "25s: 2, 2 ended, 2 dropped, exits",
	}, {
		name: "one of nine may be by chance: it shows neither", config: app(drain.AppFinishes),
		clients: append(slices.Repeat([]dt.Client{opaque(s)}, 8), opaque(-1)),
		verdict: drain.Cut, leaves: 6 * s, finish: "5s: 9, 9 ended, 1 dropped, ",
	}, {
		name: "and leaves out an app that has another request", clients: append([]dt.Client{dt.Get("/delay/26", -s, 27*s)}, opaque(500*ms)),
		verdict: drain.Clean, leaves: 26500 * ms, finish: "26s: 1, 1 ended, 0 dropped, finishes",
	}, {
		name: "a hook returns, and the SIGTERM of a native sidecar follows the app's exit", config: app(drain.AppFinishes), clients: two,
		signals: []signal{{0, drain.Hook}, {8500 * ms, drain.Terminate}},
		verdict: drain.Clean, leaves: 8500 * ms, phases: "draining 5s, waiting 0s, finishing 3s, drained 500ms",
	}, {
		name: "also if the app exits before its last bytes have been sent", config: app(drain.AppFinishes), clients: two,
		signals: []signal{{0, drain.Hook}, {7 * s, drain.Terminate}},
		verdict: drain.Clean, leaves: 8 * s, phases: "draining 5s, waiting 0s, finishing 3s, drained 0s",
	}, {
		name: "a container's hook alone keeps the listeners", config: app(drain.AppFinishes), clients: two,
		signals: []signal{{0, drain.AppHook}},
		verdict: drain.Resumed, leaves: 35 * s, phases: "draining 5s, waiting 0s, finishing 3s, drained 27s",
		calls: "0s Drain, 5s CloseIdle(2s), 5s Open, 5s CloseIdle(0s), 6s Open, 35s Resume",
	}, {
		name: "a hook without an agent ends with the draining phase", config: app(drain.AppFinishes), clients: two,
		signals: []signal{{0, drain.HookAlone}},
		verdict: drain.Clean, leaves: 5 * s, finish: "5s: 2, 0 ended, 0 dropped, ",
	}, {
		name: "and at its deadline if the app is unknown", config: app(drain.AppAuto), clients: []dt.Client{opaque(s)},
		signals: []signal{{0, drain.HookAlone}, {29 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 28 * s, finish: "none",
	}})
}

func TestFinishInTheSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := scenario{config: func(c *drain.Config) { c.App = drain.AppFinishes }, clients: []dt.Client{opaque(s), opaque(-1)}}.run(t)
		want := "1.0s for the app to end its opaque connections; the app's SIGTERM came after 5.0s, with 2 connections that only it can end: " +
			"it ended 2, of them 1 without an answer; the app cut 1"
		if got := o.report.Summary(); !strings.HasSuffix(got, want) {
			t.Errorf("%q, want the end %q", got, want)
		}
	})
}

func TestParseAppEnd(t *testing.T) {
	for text, want := range map[string]drain.AppEnd{"": drain.AppAuto, "auto": drain.AppAuto, "finishes": drain.AppFinishes, "exits": drain.AppExits} {
		if got, err := drain.ParseAppEnd(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := drain.ParseAppEnd("ends"); err == nil || !strings.Contains(err.Error(), "must be one of auto, finishes, exits") {
		t.Error(err)
	}
}
