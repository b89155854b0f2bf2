package drain_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// TestDraining is how long new connections are awaited: MINIMUM_DRAIN_DURATION
// 5 s, quiet time 2 s, capped at a third of the grace period of 30 s.
func TestDraining(t *testing.T) {
	runAll(t, []scenario{{
		name:    "an idle pod leaves exactly at the end of the minimum drain",
		verdict: drain.Clean, leaves: 5 * s, faulted: "none",
		phases: "draining 5s, waiting 0s",
		calls:  "0s Drain, 5s CloseIdle(2s), 5s StopAccepting, 5s CloseIdle(0s), 5s Close",
		logged: []string{
			"0s drain phase",
			"0s Agent draining Proxy for termination",
			"0s Agent draining proxy for 5s, then waiting for active connections to terminate...",
			"5s drain phase",
			"5s Checking for active connections...",
			"5s There are no more active connections. terminating proxy...",
			"5s Agent has successfully terminated",
		},
		silent: "still",
	}, {
		name:    "with no minimum, at the quiet time",
		config:  func(c *drain.Config) { c.MinimumDrain = 0 },
		verdict: drain.Clean, leaves: 2 * s,
	}, {
		name:    "with neither, at once",
		config:  func(c *drain.Config) { c.MinimumDrain, c.QuietTime = 0, 0 },
		verdict: drain.Clean, leaves: 0,
	}, {
		name:    "a data plane that cannot push makes no difference to an idle pod",
		polled:  true,
		verdict: drain.Clean, leaves: 5 * s,
	}, {
		name:    "a client at 2 s does not",
		clients: []dt.Client{dt.Get("/", 2*s, 100*ms)},
		verdict: drain.Clean, leaves: 5 * s, late: 2,
	}, {
		name:    "each client extends it again",
		clients: []dt.Client{dt.Get("/", 4*s, 0), dt.Get("/", 5500*ms, 0), dt.Get("/", 7*s, 100*ms)},
		verdict: drain.Clean, leaves: 9 * s, late: 6, endings: "3 answered",
	}, {
		name:    "a request on a connection that was there extends it too",
		clients: []dt.Client{{At: -9 * s, Requests: []dt.Request{{Line: "GET /", At: 4 * s, Takes: 100 * ms}}}},
		verdict: drain.Clean, leaves: 6 * s, late: 1,
	}, {
		name:    "polled, an arrival is seen 100 ms late at most",
		polled:  true,
		clients: []dt.Client{dt.Get("/", 4030*ms, 500*ms)},
		verdict: drain.Clean, leaves: 6100 * ms,
	}, {
		name:    "a client that keeps connecting is refused at the cap; open connections are served",
		clients: dt.Every(250*ms, "/", 100*ms, 20*s, 600*ms),
		verdict: drain.Clean, leaves: 10450 * ms, endings: "40 answered, 2 refused",
		phases: "draining 10s, waiting 450ms",
		calls:  "0s Drain, 10s StopAccepting, 10s CloseIdle(2s), 10s Open, 10.2s Open, 10.45s StopAccepting, 10.45s CloseIdle(0s), 10.45s Close",
		logged: []string{"10s new connections still arriving at the drain cap; closing listeners"},
	}, {
		name:    "a grace period of 21 s caps it at 7 s",
		config:  func(c *drain.Config) { c.GracePeriod = 21 * s },
		clients: dt.Every(s, "/", 500*ms, 20*s, 100*ms),
		verdict: drain.Clean, leaves: 7 * s, endings: "7 answered",
	}, {
		name:    "a minimum beyond a third of the grace period is kept",
		config:  func(c *drain.Config) { c.MinimumDrain = 15 * s },
		clients: dt.Every(s, "/", 500*ms, 20*s, 100*ms),
		verdict: drain.Clean, leaves: 15 * s, endings: "15 answered",
	}, {
		name:    "a minimum beyond the deadline ends in the last call, with nothing in between",
		config:  func(c *drain.Config) { c.MinimumDrain = time.Minute },
		clients: []dt.Client{dt.Get("/delay/60", 20*s, 60*s)},
		verdict: drain.Cut, leaves: 28 * s, phases: "draining 28s, last call 0s",
		calls: "0s Drain, 28s LastCall(875ms), 28s Close",
	}})
}

// TestWaiting has conversations that hold the exit, and others that do not.
func TestWaiting(t *testing.T) {
	runAll(t, []scenario{{
		name:    "idle kept-alive connections hold nothing",
		clients: []dt.Client{dt.Idle(-time.Hour), dt.Idle(-3 * s), dt.KeepAlive("/", -9*s, s)},
		verdict: drain.Clean, leaves: 5 * s, endings: "1 answered", silent: "still",
	}, {
		name:    "a fresh one gets its idle grace",
		config:  func(c *drain.Config) { c.IdleGrace = 4 * s },
		clients: []dt.Client{dt.Idle(4 * s)},
		verdict: drain.Clean, leaves: 8 * s, phases: "draining 6s, waiting 2s",
	}, {
		name:    "and no more than there is time for",
		config:  func(c *drain.Config) { c.IdleGrace = time.Minute },
		clients: []dt.Client{dt.Idle(4 * s)},
		verdict: drain.Clean, leaves: 28 * s,
	}, {
		name:    "a request within the idle grace is served before the connection closes",
		config:  func(c *drain.Config) { c.IdleGrace = 4 * s },
		clients: []dt.Client{{At: 4 * s, Requests: []dt.Request{{Line: "GET /", At: 7500 * ms, Takes: 2 * s}}}},
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered", heldBy: "GET / 0s",
	}, {
		name:    "a request of 10 s holds it until its end, and then not for a moment more",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered", heldBy: "GET /delay/10 5.5s",
		phases: "draining 5s, waiting 4.5s",
		calls:  "0s Drain, 5s CloseIdle(2s), 5s Open, 9.5s StopAccepting, 9.5s CloseIdle(0s), 9.5s Close",
		logged: []string{
			"5s There are still 1 active connections",
			"9.5s There are no more active connections. terminating proxy...",
		},
	}, {
		name:    "also when its client keeps the connection (Istio: 6 s more)",
		clients: []dt.Client{dt.KeepAlive("/delay/10", -500*ms, 10*s)},
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered",
	}, {
		name:    "also when its head was sent before Drain (Istio: 45 s)",
		clients: []dt.Client{dt.Stream("/stream", -500*ms, 10*s)},
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered",
	}, {
		name:    "polled, at the next look",
		polled:  true,
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10030*ms)},
		verdict: drain.Clean, leaves: 9600 * ms, endings: "1 answered",
	}, {
		name:    "an opaque connection is busy while it is open",
		clients: []dt.Client{dt.TCP(-time.Hour, time.Hour+12*s)},
		verdict: drain.Clean, leaves: 12 * s, endings: "1 answered", heldBy: "tcp 1h0m5s",
	}, {
		name:    "the last of many holds it; the line comes when the number changes, once a second at most",
		clients: []dt.Client{dt.Get("/a", -s, 7*s), dt.Get("/b", -s, 7200*ms), dt.Get("/c", -s, 7400*ms), dt.Get("/d", -s, 11*s)},
		verdict: drain.Clean, leaves: 10 * s, endings: "4 answered", heldBy: "GET /d 7.4s",
		logged: []string{
			"5s There are still 4 active connections",
			"6s There are still 3 active connections",
			"7s There are still 1 active connections",
			"10s There are no more active connections. terminating proxy...",
		},
		silent: "still 2",
	}, {
		name:    "a thousand are counted, ten are named",
		clients: slices.Repeat([]dt.Client{dt.Get("/", -s, 9*s)}, 1000),
		verdict: drain.Clean, leaves: 8 * s, endings: "1000 answered",
		logged: []string{"5s There are still 1000 active connections"},
	}, {
		name:    "a client that connects during the waiting phase is served",
		clients: []dt.Client{dt.Get("/a", -s, 9*s), dt.Get("/b", 7*s, 2*s)},
		verdict: drain.Clean, leaves: 9 * s, endings: "2 answered", late: 2, heldBy: "GET /b 1s",
	}})
}

// TestLastCall is the deadline, and its log.
func TestLastCall(t *testing.T) {
	long := []dt.Client{dt.Get("/delay/60", -500*ms, time.Minute), dt.Idle(-time.Hour)}
	grace := func(d time.Duration) func(*drain.Config) { return func(c *drain.Config) { c.GracePeriod = d } }
	runAll(t, []scenario{{
		name:    "grace 30 s: at 28 s, and the report names what it cut",
		clients: long,
		verdict: drain.Cut, leaves: 28 * s, endings: "1 called", open: "GET /delay/60 28.5s", heldBy: "GET /delay/60 5.5s",
		phases: "draining 5s, waiting 23s, last call 0s", faulted: "none",
		calls:  "0s Drain, 5s CloseIdle(2s), 5s Open, 28s LastCall(875ms), 28s Close",
		logged: []string{"28s last call: ending open connections", "28s Agent has successfully terminated"},
	}, {
		name:    "grace 2 s is shorter than the minimum drain: at 1.5 s",
		config:  grace(2 * s),
		clients: long,
		verdict: drain.Cut, leaves: 1500 * ms, phases: "draining 1.5s, last call 0s",
	}, {
		name:    "no margin: at the end of the grace period, killed",
		config:  func(c *drain.Config) { c.Margin = 0 },
		clients: []dt.Client{dt.Get("/delay/60", -500*ms, time.Minute)},
		faults:  []dt.Fault{{Method: dt.LastCall, Hang: true}},
		verdict: drain.Cut, leaves: 30 * s, endings: "1 killed",
	}, {
		name:    "what ends at the very moment is not cut",
		clients: []dt.Client{dt.Get("/", 0, 28*s)},
		verdict: drain.Clean, leaves: 28 * s, endings: "1 answered",
	}, {
		name:    "a second SIGTERM while draining",
		clients: long,
		signals: []signal{{0, drain.Terminate}, {1 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 1 * s, phases: "draining 1s, last call 0s", open: "GET /delay/60 1.5s",
		logged: []string{"1s second termination signal; making the last call now", "1s last call: ending open connections"},
	}, {
		name:    "a second SIGTERM while waiting, and a third",
		clients: long,
		signals: []signal{{0, drain.Terminate}, {7 * s, drain.Terminate}, {7 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 7 * s, phases: "draining 5s, waiting 2s, last call 0s",
	}, {
		name:    "a second SIGTERM with nothing busy cuts nothing",
		clients: []dt.Client{dt.Idle(-time.Hour)},
		signals: []signal{{0, drain.Terminate}, {1 * s, drain.Terminate}},
		verdict: drain.Clean, leaves: 1 * s,
	}, {
		name:    "a notice while draining",
		clients: long,
		signals: []signal{{0, drain.Terminate}, {1 * s, drain.Hurry}},
		verdict: drain.Cut, leaves: 1 * s, silent: "second time",
	}, {
		name:    "a notice while waiting",
		clients: long,
		signals: []signal{{0, drain.Terminate}, {6 * s, drain.Hurry}},
		verdict: drain.Cut, leaves: 6 * s,
	}, {
		name:    "a notice as the first signal: Drain and last call",
		clients: long,
		signals: []signal{{0, drain.Hurry}},
		verdict: drain.Cut, leaves: 0, calls: "0s Drain, 0s LastCall(875ms), 0s Close",
	}, {
		name:    "a notice, and a Drain that hangs: it gets an eighth of the margin",
		clients: long,
		faults:  []dt.Fault{{Method: dt.Drain, Hang: true}},
		signals: []signal{{0, drain.Hurry}},
		verdict: drain.Cut, leaves: 250 * ms, calls: "0s Drain, 250ms LastCall(750ms), 250ms Close",
	}, {
		name:    "SIGTERM after the notice changes nothing",
		clients: long,
		faults:  []dt.Fault{{Method: dt.LastCall, Delay: s}},
		signals: []signal{{0, drain.Terminate}, {6 * s, drain.Hurry}, {6500 * ms, drain.Terminate}},
		verdict: drain.Cut, leaves: 7 * s, open: "GET /delay/60 7.5s", faulted: "none",
	}, {
		name:    "a slow last call ends clients that connect meanwhile, too",
		clients: append(dt.Every(100*ms, "/", 27050*ms, 29*s, 50*ms), long...),
		faults:  []dt.Fault{{Method: dt.LastCall, Delay: s}},
		verdict: drain.Cut, leaves: 29 * s,
	}})
}

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
