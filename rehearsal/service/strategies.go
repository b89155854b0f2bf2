package service

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// AsIs is the strategy of the manifest itself.
const AsIs = "as-is"

// lastcallName is the strategy of lastcall's injection.
const lastcallName = "lastcall"

// Strategies returns the ways to stop the pods, the manifest's own first.
func Strategies() []strategy.Strategy {
	const joined = "; its hook joins the manifest's"
	sleep := func(d time.Duration) strategy.Strategy {
		words := "a preStop sleep of " + d.String() + " in place of the manifest's hook"
		return strategy.Strategy{Name: "sleep-" + d.String(), Sidecar: strategy.NoSidecar, Sleep: d, Words: words}
	}
	return []strategy.Strategy{
		{Name: AsIs, Sidecar: strategy.NoSidecar, Words: "the manifest's own hook and timers"},
		{Name: lastcallName, Sidecar: strategy.Lastcall, Words: "lastcall's sidecar" + joined},
		{Name: "lastcall-native", Sidecar: strategy.LastcallNative, Words: "lastcall's native sidecar" + joined},
		{Name: "lastcall-hook", Sidecar: strategy.NoSidecar, SocketWait: true,
			Words: "lastcall wait --ports as the preStop hook, without a sidecar"},
		sleep(5 * time.Second),
		sleep(15 * time.Second),
		{Name: "istio", Sidecar: strategy.Fixed, TerminationDrain: 5 * time.Second,
			Words: "Istio's sidecar with its defaults, imitated by lastcall agent --compat istio"},
		{Name: "istio-exit-on-zero", Sidecar: strategy.ExitOnZero,
			Words: "Istio's sidecar with EXIT_ON_ZERO_ACTIVE_CONNECTIONS, imitated"},
		{Name: "istio-native", Sidecar: strategy.IstioNative, Words: "Istio's native sidecar, imitated"},
	}
}
