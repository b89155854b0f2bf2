package drain_test

import (
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// TestArrivalsBehind: the quiet time is not over before the data plane knows that it is.
func TestArrivalsBehind(t *testing.T) {
	behind := func(from, to time.Duration) []dt.Fault {
		return []dt.Fault{{Method: dt.Activity, From: from, To: to, Behind: true}}
	}
	runAll(t, []scenario{{
		name:    "without end: drained to the cap, where the listeners close, with a fault in the report",
		faults:  behind(0, 0),
		verdict: drain.Clean, leaves: 10 * s, faulted: "unknown whether clients still connect",
		calls: "0s Drain, 10s StopAccepting, 10s CloseIdle(2s), 10s StopAccepting, 10s CloseIdle(0s), 10s Close",
	}, {
		name:    "since the middle of the quiet time",
		faults:  behind(4*s, 0),
		verdict: drain.Clean, leaves: 10 * s, faulted: "unknown whether clients still connect",
	}, {
		name:    "until it has asked",
		polled:  true,
		faults:  behind(4*s, 6*s),
		verdict: drain.Clean, leaves: 6 * s, faulted: "none",
	}, {
		name:    "complete again before the end of the quiet time",
		faults:  behind(0, 4*s),
		verdict: drain.Clean, leaves: 5 * s, faulted: "none",
	}, {
		name:    "clients still connect, and the count is complete: the ordinary cap",
		clients: dt.Every(s, "/", 0, 40*s, 10*ms),
		faults:  behind(0, 3*s),
		verdict: drain.Clean, leaves: 10010 * ms, faulted: "none",
		logged: []string{"10s new connections still arriving at the drain cap; closing listeners"},
	}})
}
