package drain_test

import (
	"testing"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

func ignoring(methods ...dt.Method) (out []dt.Fault) {
	for _, m := range methods {
		out = append(out, dt.Fault{Method: m, Hang: true, IgnoresContext: true})
	}
	return out
}

// TestCallsThatIgnoreTheirContext: a call that does not respect its context is given up, no other begins
// meanwhile, and none of them keeps the report from being written within the grace period.
func TestCallsThatIgnoreTheirContext(t *testing.T) {
	runAll(t, []scenario{{
		name:    "Drain",
		clients: day,
		faults:  ignoring(dt.Drain),
		verdict: drain.Cut, leaves: 29750 * ms, endings: "1 killed", calls: "0s Drain, 29.75s Kill",
		faulted: "Error in invoking drain listeners endpoint: no return 100ms after the deadline",
	}, {
		name:    "a look, for a while",
		clients: ten,
		faults:  []dt.Fault{{Method: dt.Activity, From: 0, To: s, Delay: 7 * s, IgnoresContext: true}},
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered",
		faulted: "activity unknown: no return 100ms after the deadline",
	}, {
		name:    "StopAccepting when idle",
		faults:  ignoring(dt.StopAccepting),
		verdict: drain.Cut, leaves: 29750 * ms, calls: "0s Drain, 5s CloseIdle(2s), 5s StopAccepting, 29.75s Kill",
	}, {
		name:    "LastCall",
		clients: day,
		faults:  ignoring(dt.LastCall),
		verdict: drain.Cut, leaves: 29750 * ms, endings: "1 killed",
	}, {
		name:    "Close",
		faults:  ignoring(dt.Close),
		verdict: drain.Cut, leaves: 29750 * ms, faulted: "close the data plane: no return 100ms after the deadline",
	}, {
		name:    "everything, Kill included: 125 ms before SIGKILL, with unknown conversations",
		clients: day,
		faults:  ignoring(append(all, dt.Kill)...),
		verdict: drain.Cut, leaves: 29875 * ms, faulted: "data plane did not end when killed",
	}, {
		name:    "everything, and a second SIGTERM after one second",
		clients: day,
		faults:  ignoring(append(all, dt.Kill)...),
		signals: []signal{{0, drain.Terminate}, {1 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 4750 * ms,
	}, {
		name:    "everything, and /quitquitquit",
		clients: day,
		faults:  ignoring(append(all, dt.Kill)...),
		signals: []signal{{0, drain.Terminate}, {7 * s, drain.QuitNow}},
		verdict: drain.Quit, leaves: 9 * s,
	}})
}

// TestHangingKill: it has two seconds, and no more than the kubelet leaves.
func TestHangingKill(t *testing.T) {
	kill := hangs(dt.Kill)
	runAll(t, []scenario{{
		name:    "/quitquitquit",
		clients: ten,
		faults:  kill,
		signals: []signal{{0, drain.QuitNow}},
		verdict: drain.Quit, leaves: 2 * s, faulted: "data plane did not end when killed",
	}, {
		name:    "late, but in time",
		clients: ten,
		faults:  []dt.Fault{{Method: dt.Kill, Delay: s}},
		signals: []signal{{0, drain.QuitNow}},
		verdict: drain.Quit, leaves: s, endings: "1 killed", faulted: "none",
	}, {
		name:    "at the end of the grace period",
		clients: day,
		faults:  append(hangs(dt.LastCall, dt.Close), kill...),
		verdict: drain.Cut, leaves: 29875 * ms,
	}, {
		name:    "Istio's fixed time",
		mode:    drain.Fixed,
		clients: day,
		faults:  kill,
		verdict: drain.Ended, leaves: 7 * s,
	}})
}
