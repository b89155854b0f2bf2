package drain_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

var (
	all = []dt.Method{dt.Drain, dt.Resume, dt.Activity, dt.CloseIdle, dt.StopAccepting, dt.Open, dt.LastCall, dt.Close}

	ten = []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)}
	day = []dt.Client{dt.Get("/delay/86400", -500*ms, 24*time.Hour)}
)

func hangs(methods ...dt.Method) (out []dt.Fault) {
	for _, m := range methods {
		out = append(out, dt.Fault{Method: m, Hang: true})
	}
	return out
}

func fails(methods ...dt.Method) (out []dt.Fault) {
	for _, m := range methods {
		out = append(out, dt.Fault{Method: m, Err: errors.New("out of order")})
	}
	return out
}

// TestIgnorance: unknown activity counts as busy until the deadline.
func TestIgnorance(t *testing.T) {
	unknown := func(from, to time.Duration) []dt.Fault {
		return []dt.Fault{{Method: dt.Activity, From: from, To: to, Unknown: true}}
	}
	runAll(t, []scenario{{
		name:    "always unknown: an empty last call, and one log line",
		faults:  unknown(0, 0),
		verdict: drain.Clean, leaves: 28 * s, faulted: "activity unknown: not known to the data plane",
		logged: []string{"0s data plane activity unknown; treating open connections as busy"},
		silent: "no more active",
	}, {
		name:    "always unknown, with a busy connection: it ends at the deadline, not before",
		clients: day,
		faults:  unknown(0, 0),
		verdict: drain.Cut, leaves: 28 * s, endings: "1 called",
	}, {
		name:    "every look fails",
		clients: ten,
		faults:  fails(dt.Activity),
		verdict: drain.Clean, leaves: 28 * s, endings: "1 answered", faulted: "activity unknown: out of order",
	}, {
		name:    "every look hangs: the deadline is kept to the moment",
		clients: day,
		faults:  hangs(dt.Activity),
		verdict: drain.Cut, leaves: 28 * s, faulted: "activity unknown: Activity: context deadline exceeded",
	}, {
		name:    "unknown for a while: polled until it is available",
		faults:  unknown(0, 8*s),
		verdict: drain.Clean, leaves: 8 * s,
	}, {
		name:    "unknown in the moment of the end of the last: seen at the next look",
		clients: ten,
		faults:  unknown(9400*ms, 9600*ms),
		verdict: drain.Clean, leaves: 9600 * ms, endings: "1 answered",
	}, {
		name:    "unknown after the listeners have closed: waits, although it was idle a moment ago",
		faults:  unknown(5*s, 7*s),
		verdict: drain.Clean, leaves: 7 * s,
	}, {
		name:    "now known, now not, ten times a second: one line a second, one fault",
		polled:  true,
		clients: ten,
		faults: func() (out []dt.Fault) {
			for at := time.Duration(0); at < 10*s; at += 200 * ms {
				out = append(out, unknown(at, at+100*ms)...)
			}
			return out
		}(),
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered",
		logged: []string{
			"0s data plane activity unknown; treating open connections as busy",
			"1s data plane activity unknown; treating open connections as busy",
		},
	}, {
		name: "forty different errors: the report has to fit into a termination message",
		faults: func() (out []dt.Fault) {
			for at := time.Duration(0); at < 40*s; at += s {
				out = append(out,
					dt.Fault{Method: dt.Activity, From: at, To: at + 500*ms, Err: fmt.Errorf("out of order at %v", at)},
					dt.Fault{Method: dt.Activity, From: at + 500*ms, To: at + s})
			}
			return out
		}(),
		config:  func(c *drain.Config) { c.GracePeriod, c.MinimumDrain = time.Minute, 45*s },
		polled:  true,
		verdict: drain.Clean, leaves: 45 * s, faulted: "out of order at 10s",
	}})
}

// TestHangingCalls: each gets its time, and none holds the end.
func TestHangingCalls(t *testing.T) {
	runAll(t, []scenario{{
		name:    "Drain: 2 s; without its confirmation the plane is polled",
		clients: ten,
		faults:  hangs(dt.Drain),
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered",
		faulted: "Error in invoking drain listeners endpoint: Drain: context deadline exceeded",
	}, {
		name:    "StopAccepting: 2 s when idle",
		faults:  hangs(dt.StopAccepting),
		verdict: drain.Clean, leaves: 7 * s, faulted: "stop accepting: StopAccepting: context deadline exceeded",
	}, {
		name:    "CloseIdle: 2 s, twice",
		faults:  hangs(dt.CloseIdle),
		verdict: drain.Clean, leaves: 9 * s, faulted: "close idle connections: CloseIdle: context deadline exceeded",
	}, {
		name:    "Open: half a second, and it is not asked again",
		clients: append([]dt.Client{dt.Get("/", -s, 8*s)}, ten...),
		faults:  hangs(dt.Open),
		verdict: drain.Clean, leaves: 9500 * ms, endings: "2 answered",
		calls: "0s Drain, 5s CloseIdle(2s), 5s Open, 9.5s StopAccepting, 9.5s CloseIdle(0s), 9.5s Close",
	}, {
		name:    "LastCall: three quarters of the time left; Close the rest; then Kill",
		clients: day,
		faults:  hangs(dt.LastCall),
		verdict: drain.Cut, leaves: 29750 * ms, endings: "1 killed",
		calls: "0s Drain, 5s CloseIdle(2s), 5s Open, 28s LastCall(875ms), 29.3125s Close, 29.75s Kill",
	}, {
		name:    "LastCall, in a hurry: one margin, not the whole grace period",
		clients: day,
		faults:  hangs(dt.LastCall),
		signals: []signal{{0, drain.Terminate}, {7 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 8750 * ms, endings: "1 killed",
	}, {
		name:    "Close, with nothing open: to the deadline, an empty last call, then Kill",
		faults:  hangs(dt.Close),
		verdict: drain.Clean, leaves: 29750 * ms,
		calls:  "0s Drain, 5s CloseIdle(2s), 5s StopAccepting, 5s CloseIdle(0s), 5s Close, 28s LastCall(875ms), 28s Close, 29.75s Kill",
		logged: []string{"29.75s data plane did not close in time; killing it"},
	}, {
		name:    "Close, with nothing open, and a second SIGTERM",
		faults:  hangs(dt.Close),
		signals: []signal{{0, drain.Terminate}, {8 * s, drain.Terminate}},
		verdict: drain.Clean, leaves: 9750 * ms,
	}, {
		name:    "everything",
		clients: day,
		faults:  hangs(all...),
		verdict: drain.Cut, leaves: 29750 * ms, endings: "1 killed",
	}, {
		name:    "everything, grace 7 s",
		config:  func(c *drain.Config) { c.GracePeriod = 7 * s },
		clients: day,
		faults:  hangs(all...),
		verdict: drain.Cut, leaves: 7*s - 1750*ms/8, endings: "1 killed",
	}, {
		name:    "everything, and a second SIGTERM after one second",
		clients: day,
		faults:  hangs(all...),
		signals: []signal{{0, drain.Terminate}, {1 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 2750 * ms, endings: "1 killed",
		calls: "0s Drain, 1s LastCall(875ms), 2.3125s Close, 2.75s Kill",
	}, {
		name:    "a Close that leaves connections open, and a busy one after all: cut, not clean",
		clients: append([]dt.Client{{At: -s, Requests: []dt.Request{{Line: "GET /", At: 6 * s, Takes: time.Minute}}}}, ten...),
		faults:  []dt.Fault{{Method: dt.CloseIdle, Hang: true}, {Method: dt.Close, From: 0, To: 20 * s, Hang: true}},
		verdict: drain.Cut, leaves: 28 * s, endings: "1 answered, 1 called",
	}})
}

// TestFailingCalls: they are noted, and change nothing else.
func TestFailingCalls(t *testing.T) {
	runAll(t, []scenario{{
		name:    "Drain",
		clients: ten,
		faults:  fails(dt.Drain),
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered",
		logged: []string{"0s Error in invoking drain listeners endpoint: out of order"},
	}, {
		name:    "CloseIdle, StopAccepting and Open",
		clients: ten,
		faults:  fails(dt.CloseIdle, dt.StopAccepting, dt.Open),
		verdict: drain.Clean, leaves: 9500 * ms, endings: "1 answered", faulted: "list open conversations: out of order",
	}, {
		name:    "LastCall: an unknown result counts as cut",
		clients: day,
		faults:  fails(dt.LastCall),
		verdict: drain.Cut, leaves: 29750 * ms, endings: "1 killed", faulted: "last call: out of order",
	}, {
		name:    "Close: killed at once, since nothing was open",
		faults:  fails(dt.Close),
		verdict: drain.Clean, leaves: 5 * s, faulted: "close the data plane: out of order",
		calls: "0s Drain, 5s CloseIdle(2s), 5s StopAccepting, 5s CloseIdle(0s), 5s Close, 5s LastCall(1s), 5s Close, 5s Kill",
	}, {
		name:    "everything",
		clients: day,
		faults:  fails(all...),
		verdict: drain.Cut, leaves: 28 * s, endings: "1 killed",
	}, {
		name:    "Resume",
		faults:  fails(dt.Resume),
		signals: []signal{{0, drain.Hook}},
		verdict: drain.Resumed, leaves: 35 * s, faulted: "resume: out of order",
	}})
}

// TestQuitAndDeath come at any moment, and are obeyed in it.
func TestQuitAndDeath(t *testing.T) {
	when := []struct {
		name    string
		at      time.Duration
		clients []dt.Client
		faults  []dt.Fault
		signals []signal
		phases  string
		whole   bool // the plane had no open connection: its death is a clean end
		cut     bool // the last call has cut a conversation, which stays in the report
	}{
		{name: "while draining", at: 1 * s, phases: "draining 1s"},
		{name: "while waiting", at: 7 * s, clients: ten, phases: "draining 5s, waiting 2s"},
		{name: "while drained", at: 9 * s, signals: []signal{{0, drain.Hook}}, phases: "draining 5s, waiting 0s, drained 4s"},
		{name: "while Drain hangs", at: 1 * s, faults: hangs(dt.Drain), phases: "draining 1s"},
		{name: "while the first look hangs", at: 1 * s, faults: hangs(dt.Activity), phases: "draining 1s"},
		{name: "while a later look hangs", at: 6 * s, clients: day, faults: []dt.Fault{{Method: dt.Activity, From: 5 * s, Hang: true}}, phases: "draining 6s"},
		{name: "while CloseIdle hangs", at: 6 * s, clients: day, faults: hangs(dt.CloseIdle), phases: "draining 5s, waiting 1s"},
		{name: "while Open hangs", at: 5300 * ms, clients: day, faults: hangs(dt.Open), phases: "draining 5s, waiting 300ms"},
		{name: "while StopAccepting hangs when idle", at: 6 * s, faults: hangs(dt.StopAccepting), phases: "draining 5s, waiting 1s"},
		{name: "while Close hangs when idle", at: 6 * s, faults: hangs(dt.Close), phases: "draining 5s, waiting 1s", whole: true},
		{name: "while LastCall hangs", at: 28500 * ms, clients: day, faults: hangs(dt.LastCall), phases: "draining 5s, waiting 23s, last call 500ms"},
		{name: "while Close hangs after the last call", at: 28500 * ms, clients: day, faults: hangs(dt.Close), phases: "draining 5s, waiting 23s, last call 500ms", whole: true, cut: true},
	}
	var scenarios []scenario
	for _, w := range when {
		begin := w.signals
		if begin == nil {
			begin = []signal{{0, drain.Terminate}}
		}
		base := scenario{clients: w.clients, faults: w.faults, signals: begin, leaves: w.at, phases: w.phases, faulted: "none"}

		quit := base
		quit.name, quit.verdict = "/quitquitquit "+w.name, drain.Quit
		quit.signals = append(begin[:1:1], signal{w.at, drain.QuitNow})
		quit.logged = []string{w.at.String() + " handling /quitquitquit, notifying pilot-agent to exit"}

		gone := base
		gone.name, gone.verdict = "ctx ends "+w.name, drain.Quit
		gone.ctxEnds = w.at
		gone.silent = "quitquitquit"

		died := base
		died.name, died.verdict = "the data plane dies "+w.name, drain.Crashed
		died.dies = w.at
		died.logged = []string{w.at.String() + " Graceful termination logic ended prematurely, envoy process terminated early"}

		if w.whole {
			died.verdict, died.logged = drain.Clean, nil
		}
		if w.cut {
			quit.verdict, gone.verdict, died.verdict = drain.Cut, drain.Cut, drain.Cut
		}
		for _, sc := range []*scenario{&quit, &gone, &died} {
			if w.clients == nil && w.faults == nil {
				continue
			}
			sc.faulted = "" // a fault may have been noted before
		}
		scenarios = append(scenarios, quit, gone, died)
	}
	scenarios = append(scenarios, scenario{
		name:    "/quitquitquit during a last call: the report lists the cut conversations",
		clients: day,
		faults:  []dt.Fault{{Method: dt.LastCall, Delay: s, Hastens: true}},
		signals: []signal{{0, drain.Terminate}, {28500 * ms, drain.QuitNow}},
		verdict: drain.Cut, leaves: 28500 * ms, open: "GET /delay/86400 29s",
	}, scenario{
		name:    "/quitquitquit is the first thing that is heard: no drain at all",
		clients: ten,
		signals: []signal{{0, drain.QuitNow}},
		verdict: drain.Quit, leaves: 0, calls: "0s Kill", endings: "1 killed",
		logged: []string{"0s handling /quitquitquit, notifying pilot-agent to exit", "0s Agent already drained, exiting immediately"},
	}, scenario{
		name:    "/quitquitquit when everything hangs",
		clients: ten,
		faults:  hangs(all...),
		signals: []signal{{0, drain.Terminate}, {7 * s, drain.QuitNow}},
		verdict: drain.Quit, leaves: 7 * s,
	})
	runAll(t, scenarios)
}

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

// TestSoonerInACall is SIGKILL that comes sooner than it did when a call of the data plane began.
func TestSoonerInACall(t *testing.T) {
	runAll(t, []scenario{{
		name:    "while Close hangs after the last call",
		clients: []dt.Client{dt.Get("/", 0, time.Hour)},
		faults:  []dt.Fault{{Method: dt.Close, Hang: true}},
		notices: []notice{{28500 * ms, 29 * s}},
		verdict: drain.Cut, leaves: 28750 * ms, faulted: "close the data plane",
	}, {
		name:    "and Close has hung for longer",
		clients: []dt.Client{dt.Get("/", 0, time.Hour)},
		faults:  []dt.Fault{{Method: dt.Close, Hang: true}},
		notices: []notice{{28900 * ms, 29 * s}},
		verdict: drain.Cut, leaves: 28900 * ms, faulted: "close the data plane",
	}, {
		name:    "and leaves no time for the last call, which is made nevertheless",
		clients: []dt.Client{dt.Get("/", 0, time.Hour)},
		notices: []notice{{9 * s, 9100 * ms}},
		verdict: drain.Cut, leaves: 9 * s, endings: "1 called",
	}})
}
