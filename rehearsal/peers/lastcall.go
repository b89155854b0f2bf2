package peers

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// lastcall's own limits. With idle connections the kernel reports no event at the last byte: the agent polls every 300 ms,
// and then reads Envoy's stats.
const (
	lastcallLag     = 100 * time.Millisecond
	lastcallLagIdle = 450 * time.Millisecond
)

func lastcall() []Peer {
	const source = "this program"
	return []Peer{
		{
			Name: "lastcall-sidecar", Source: source, form: lastcallPod, app: strategy.ClosesListener, grace: defaultGrace,
			Words:  "lastcall agent --proxy envoy, lastcall wait as the app's preStop; at least 5 s",
			expect: expectLastcall,
		},
		{
			Name: "lastcall-sidecar-exit", Source: source, form: lastcallPod, app: strategy.Exits, grace: defaultGrace,
			Words:  "the same with an app that exits at SIGTERM",
			expect: expectLastcall,
		},
		{
			Name: "lastcall-manager", Source: source, form: lastcallManager, app: strategy.ClosesListener, grace: defaultGrace,
			Words:     "shutdown manager: lastcall agent --admin-address, with an Envoy that it did not start",
			envoyArgs: []string{"--drain-time-s", "60", "--drain-strategy", "immediate"},
			expect:    expectLastcall,
		},
	}
}

func expectLastcall(c circumstances) expectation {
	lastCall := c.grace - min(2*time.Second, c.grace/4)
	s := waits(c, lastCall, lag.At(max(c.left, strategy.MinimumDrain)))
	s.lag, s.late = lastcallLag, true
	if c.scene == KeepAlive {
		s.lag = lastcallLagIdle
	}
	if s.lost {
		s.lag, s.gone = 0, lag.Between(lastCall, c.grace)
	}
	return s
}
