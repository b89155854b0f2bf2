package drain_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

var errRefused = errors.New("connection refused")

// TestIstioFixed runs pilot-agent's default; the times were measured with Istio.
func TestIstioFixed(t *testing.T) {
	runAll(t, each(drain.Fixed, []scenario{{
		name:    "an idle pod waits the 5 s for nothing",
		verdict: drain.Ended, leaves: 5 * s, faulted: "none",
		phases: "draining 5s",
		calls:  "0s Drain, 5s Open, 5s Kill",
		logged: []string{
			"0s Status server has successfully terminated",
			"0s Agent draining Proxy for termination",
			"0s Graceful termination period is 5s, starting...",
			"5s Graceful termination period complete, terminating remaining proxies.",
			"5s Aborting proxy",
			"5s Envoy aborted normally",
			"5s Aborted proxy instance",
			"5s Agent has successfully terminated",
		},
	}, {
		name:    "a request of 10 s is killed at 5 s",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		verdict: drain.Ended, leaves: 5 * s, endings: "1 killed", open: "GET /delay/10 5.5s",
	}, {
		name:    "terminationDrainDuration 30s saves it and waits 20.5 s too long",
		config:  func(c *drain.Config) { c.TerminationDrain = 30 * s },
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		verdict: drain.Ended, leaves: 30 * s, endings: "1 answered",
		logged: []string{"0s Graceful termination period is 30s, starting..."},
	}, {
		name:    "new connections are accepted until the kill",
		clients: dt.Every(100*ms, "/delay/0.05", 10*ms, 10*s, 50*ms),
		verdict: drain.Ended, leaves: 5 * s, endings: "50 answered",
	}, {
		name:    "a second SIGTERM is swallowed",
		signals: []signal{{0, drain.Terminate}, {1 * s, drain.Terminate}, {2 * s, drain.Terminate}},
		verdict: drain.Ended, leaves: 5 * s, silent: "second time",
	}, {
		name:    "Envoy killed 1.5 s after SIGTERM",
		dies:    1500 * ms,
		verdict: drain.Crashed, leaves: 1500 * ms,
		logged: []string{"1.5s Graceful termination logic ended prematurely, envoy process terminated early"},
	}, {
		name:    "/quitquitquit leaves at once, whatever is open",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		signals: []signal{{0, drain.Terminate}, {2 * s, drain.QuitNow}},
		verdict: drain.Quit, leaves: 2 * s, endings: "1 killed",
		logged: []string{
			"2s handling /quitquitquit, notifying pilot-agent to exit",
			"2s Agent already drained, exiting immediately",
		},
	}, {
		name:    "a drain that is refused is logged, and the sleep continues",
		faults:  []dt.Fault{{Method: dt.Drain, Err: errRefused}},
		verdict: drain.Ended, leaves: 5 * s,
		faulted: "Error in invoking drain listeners endpoint: connection refused",
		logged:  []string{"0s Error in invoking drain listeners endpoint: connection refused"},
	}, {
		name:    "a drain that hangs does not keep the agent (Istio's never exits)",
		faults:  []dt.Fault{{Method: dt.Drain, Hang: true}},
		verdict: drain.Ended, leaves: 5 * s,
		faulted: "context deadline exceeded",
	}, {
		name:    "it never looks, so what is unknown changes nothing",
		faults:  []dt.Fault{{Method: dt.Activity, Hang: true}},
		verdict: drain.Ended, leaves: 5 * s, faulted: "none",
	}, {
		name:    "ctx ended: killed",
		ctxEnds: 3 * s,
		verdict: drain.Quit, leaves: 3 * s,
	}, {
		name:    "native sidecar: /drain, then SIGTERM ends it at once with the request open",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		signals: []signal{{0, drain.IstioDrain}, {2 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 2 * s, endings: "1 killed", open: "GET /delay/10 2.5s",
		phases: "draining 0s, drained 2s",
		calls:  "0s Drain, 2s Open, 2s Kill",
		logged: []string{
			"0s handling /drain, starting drain",
			"2s Status server has successfully terminated",
			"2s Agent already drained, exiting immediately",
			"2s Aborting proxy",
			"2s Envoy aborted normally",
			"2s Agent has successfully terminated",
		},
	}, {
		name:    "a hook waits for the sleep, and SIGTERM ends it",
		clients: []dt.Client{dt.Get("/delay/4", -500*ms, 4*s)},
		signals: []signal{{0, drain.Hook}, {7 * s, drain.Terminate}},
		verdict: drain.Ended, leaves: 7 * s, phases: "draining 5s, drained 2s", endings: "1 answered",
		calls: "0s Drain, 7s Open, 7s Kill",
	}, {
		name:    "SIGTERM during the sleep does not shorten it",
		signals: []signal{{0, drain.AppHook}, {0, drain.Hook}, {1 * s, drain.Terminate}},
		verdict: drain.Ended, leaves: 5 * s, phases: "draining 5s",
	}, {
		name:    "a hook without SIGTERM is cancelled",
		signals: []signal{{0, drain.AppHook}},
		verdict: drain.Resumed, leaves: 35 * s, phases: "draining 5s, drained 30s",
	}, {
		name:    "/drain without SIGTERM drains without end",
		signals: []signal{{0, drain.IstioDrain}},
		ctxEnds: time.Hour,
		verdict: drain.Quit, leaves: time.Hour, phases: "draining 0s, drained 1h0m0s",
	}, {
		name:    "/drain, then Envoy dies",
		signals: []signal{{0, drain.IstioDrain}},
		dies:    7 * s,
		verdict: drain.Crashed, leaves: 7 * s,
	}, {
		name:    "/drain, then an unknown list of conversations: not a clean end",
		signals: []signal{{0, drain.IstioDrain}, {2 * s, drain.Terminate}},
		faults:  []dt.Fault{{Method: dt.Open, Err: errRefused}},
		verdict: drain.Cut, leaves: 2 * s,
	}}))
}

// TestIstioExitOnZero is EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true.
func TestIstioExitOnZero(t *testing.T) {
	runAll(t, each(drain.IstioExitOnZero, []scenario{{
		name:    "an idle pod leaves at 6 s: the minimum and one tick",
		verdict: drain.Clean, leaves: 6 * s, faulted: "none",
		phases: "draining 5s, waiting 1s",
		calls:  "0s Drain, 6s Open, 6s Kill",
		logged: []string{
			"0s Status server has successfully terminated",
			"0s Agent draining Proxy for termination",
			"0s Agent draining proxy for 5s, then waiting for active connections to terminate...",
			"5s Checking for active connections...",
			"6s There are no more active connections. terminating proxy...",
			"6s Aborting proxy",
			"6s Envoy aborted normally",
			"6s Aborted proxy instance",
			"6s Agent has successfully terminated",
		},
	}, {
		name:    "MINIMUM_DRAIN_DURATION 0s: the floor is one tick",
		config:  func(c *drain.Config) { c.MinimumDrain = 0 },
		verdict: drain.Clean, leaves: 1 * s,
	}, {
		name:    "a request of 10 s, its client hangs up: the tick after its end",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		verdict: drain.Clean, leaves: 10 * s, endings: "1 answered",
		logged: []string{
			"6s There are still 1 active connections",
			"7s There are still 1 active connections",
			"8s There are still 1 active connections",
			"9s There are still 1 active connections",
			"10s There are no more active connections. terminating proxy...",
		},
	}, {
		name:    "connections are counted, not requests: an idle one holds it until it goes",
		clients: []dt.Client{{At: -time.Minute, Leaves: 44970 * ms}},
		verdict: drain.Clean, leaves: 45 * s,
	}, {
		name:    "and without end if it does not: there is no deadline",
		clients: []dt.Client{dt.Idle(-time.Minute)},
		ctxEnds: 120 * s,
		verdict: drain.Quit, leaves: 120 * s,
	}, {
		name:    "one sample of zero is enough while new connections are still coming",
		clients: dt.Every(s, "/delay/0.05", 500*ms, 20*s, 50*ms),
		verdict: drain.Clean, leaves: 6 * s, endings: "6 answered",
	}, {
		name:    "a second SIGTERM is swallowed",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		signals: []signal{{0, drain.Terminate}, {1 * s, drain.Terminate}, {7 * s, drain.Terminate}},
		verdict: drain.Clean, leaves: 10 * s, endings: "1 answered", silent: "second time",
	}, {
		name:    "the admin refuses: five failed looks, and the request is killed",
		clients: []dt.Client{dt.Get("/delay/20", -500*ms, 20*s)},
		faults:  []dt.Fault{{Method: dt.Activity, Err: errRefused}},
		verdict: drain.Cut, leaves: 10 * s, endings: "1 killed", open: "GET /delay/20 10.5s",
		faulted: "unable to get listener stats from Envoy : connection refused",
		logged: []string{
			"6s unable to get listener stats from Envoy : connection refused",
			"6s Retrying (1 attempt) to obtain active connections...",
			"7s Retrying (2 attempt) to obtain active connections...",
			"8s Retrying (3 attempt) to obtain active connections...",
			"9s Retrying (4 attempt) to obtain active connections...",
			"10s Graceful termination logic ended prematurely, error while obtaining downstream_cx_active stat (Max retry 5 exceeded)",
		},
		silent: "Retrying (5",
	}, {
		name:    "Envoy hangs after the drain: five polls of 2 s",
		faults:  []dt.Fault{{Method: dt.Activity, Hang: true}},
		clients: []dt.Client{dt.Get("/delay/20", -500*ms, 20*s)},
		verdict: drain.Cut, leaves: 16 * s, endings: "1 killed",
		logged: []string{
			"8s Retrying (1 attempt) to obtain active connections...",
			"10s Retrying (2 attempt) to obtain active connections...",
			"12s Retrying (3 attempt) to obtain active connections...",
			"14s Retrying (4 attempt) to obtain active connections...",
		},
	}, {
		name:    "a successful poll with a connection resets the count of failures",
		faults:  []dt.Fault{{Method: dt.Activity, To: 10 * s, Err: errRefused}, {Method: dt.Activity, From: 11 * s, Err: errRefused}},
		clients: []dt.Client{dt.Get("/delay/60", -500*ms, 60*s)},
		verdict: drain.Cut, leaves: 15 * s,
		logged: []string{
			"9s Retrying (4 attempt) to obtain active connections...",
			"10s There are still 1 active connections",
			"11s Retrying (1 attempt) to obtain active connections...",
		},
	}, {
		name:    "of the ticks missed by looks that hung, one is made up for",
		faults:  []dt.Fault{{Method: dt.Activity, To: 9 * s, Hang: true}},
		clients: []dt.Client{dt.Get("/delay/12", -500*ms, 12*s)},
		verdict: drain.Clean, leaves: 12 * s,
		logged: []string{
			"10s Retrying (2 attempt) to obtain active connections...",
			"10s There are still 1 active connections",
			"11s There are still 1 active connections",
		},
	}, {
		name:    "the stat is not there: the check is skipped, the request killed",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		faults:  []dt.Fault{{Method: dt.Activity, Unknown: true}},
		verdict: drain.Cut, leaves: 6 * s, endings: "1 killed",
		logged: []string{"6s downstream_cx_active are not available. This either means there are no downstream connection established yet or the stats are not enabled. Skipping active connections check..."},
	}, {
		name:    "Envoy killed 1.5 s after SIGTERM: at once (Istio's notices at 6 s)",
		dies:    1500 * ms,
		verdict: drain.Crashed, leaves: 1500 * ms,
		logged: []string{"1.5s Graceful termination logic ended prematurely, envoy process terminated early"},
	}, {
		name:    "Envoy dies during a look that hangs",
		faults:  []dt.Fault{{Method: dt.Activity, Hang: true}},
		dies:    7 * s,
		verdict: drain.Crashed, leaves: 7 * s, silent: "Retrying",
	}, {
		name:    "/quitquitquit during a look that hangs",
		faults:  []dt.Fault{{Method: dt.Activity, Hang: true}},
		signals: []signal{{0, drain.Terminate}, {7 * s, drain.QuitNow}},
		verdict: drain.Quit, leaves: 7 * s, silent: "Retrying",
	}, {
		name:    "/drain, then SIGTERM: the setting is ignored",
		clients: []dt.Client{dt.Get("/delay/10", -500*ms, 10*s)},
		signals: []signal{{0, drain.IstioDrain}, {2 * s, drain.Terminate}},
		verdict: drain.Cut, leaves: 2 * s, endings: "1 killed",
	}, {
		name:    "a notice makes a polite last call, which Istio's has not",
		clients: []dt.Client{dt.Get("/delay/60", -500*ms, 60*s)},
		signals: []signal{{0, drain.Terminate}, {50 * s, drain.Hurry}},
		verdict: drain.Cut, leaves: 50 * s, endings: "1 called", open: "GET /delay/60 50.5s",
	}, {
		name:    "Open hangs at the end of an empty pod: still clean",
		faults:  []dt.Fault{{Method: dt.Open, Hang: true}},
		verdict: drain.Clean, leaves: 6500 * ms,
	}}))
}

func each(m drain.Mode, scenarios []scenario) []scenario {
	for i := range scenarios {
		scenarios[i].mode = m
	}
	return scenarios
}
