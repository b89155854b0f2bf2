package drain_test

import (
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// TestSooner has SIGKILL come before the end of a grace period of 30 s.
func TestSooner(t *testing.T) {
	endless := []dt.Client{dt.Get("/stream", -s, time.Hour)}
	runAll(t, []scenario{{
		name:    "kubectl delete --grace-period=8, known from the beginning",
		clients: endless,
		notices: []notice{{0, 8 * s}},
		verdict: drain.Cut, leaves: 6 * s, phases: "draining 5s, waiting 1s, last call 0s",
		logged: []string{"0s SIGKILL comes before the end of the grace period"},
	}, {
		name:    "known a moment after SIGTERM",
		clients: endless,
		notices: []notice{{300 * ms, 8 * s}},
		verdict: drain.Cut, leaves: 6 * s, phases: "draining 5s, waiting 1s, last call 0s",
	}, {
		name:    "a second, shorter delete during the wait",
		clients: endless,
		notices: []notice{{12 * s, 16 * s}},
		verdict: drain.Cut, leaves: 14 * s,
	}, {
		name:    "the margin of a short grace period is a quarter of it",
		clients: endless,
		notices: []notice{{0, 2 * s}},
		verdict: drain.Cut, leaves: 1500 * ms, phases: "draining 1.5s, last call 0s",
	}, {
		name:    "known after the moment of the last call: now",
		clients: endless,
		notices: []notice{{7500 * ms, 8 * s}},
		verdict: drain.Cut, leaves: 7500 * ms,
	}, {
		name:    "requests that end in time are not cut",
		clients: []dt.Client{dt.Get("/delay/5", 500*ms, 5*s)},
		notices: []notice{{0, 8 * s}},
		verdict: drain.Clean, leaves: 5500 * ms,
	}, {
		name:    "later than the grace period: ignored",
		clients: endless,
		notices: []notice{{0, 31 * s}, {s, 40 * s}},
		verdict: drain.Cut, leaves: 28 * s, silent: "SIGKILL comes before",
	}, {
		name:    "before the beginning: of an earlier termination",
		clients: endless,
		notices: []notice{{0, -s}},
		verdict: drain.Cut, leaves: 28 * s, silent: "SIGKILL comes before",
	}, {
		name:    "a hook began it: SIGTERM follows at once",
		clients: endless,
		notices: []notice{{100 * ms, 8 * s}},
		signals: []signal{{0, drain.Hook}, {6 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 6 * s,
	}, {
		name:    "Close hangs when it becomes known: the last call comes in time nevertheless",
		faults:  []dt.Fault{{Method: dt.Close, Hang: true}},
		notices: []notice{{7 * s, 12 * s}},
		verdict: drain.Clean, leaves: 11750 * ms, faulted: "close the data plane",
	}, {
		name:    "Istio's fixed wait has no deadline",
		mode:    drain.Fixed,
		clients: endless,
		notices: []notice{{0, 2 * s}},
		verdict: drain.Ended, leaves: 5 * s, silent: "SIGKILL comes before",
	}})
}
