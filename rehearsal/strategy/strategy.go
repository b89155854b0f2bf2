// Package strategy has the strategies of a rehearsal, which are ways to stop a pod, and starts the pods that show
// them: real processes on loopback.
package strategy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	longFixedDrain = 30 * time.Second
	shortGrace     = 7 * time.Second // of the rows with a short grace period
)

// Strategies returns the strategies of the experiment, in the order of the table.
func Strategies() []Strategy {
	const (
		istio  = "Istio"
		hooks  = "preStop hooks, with Istio's default drain"
		short  = "A grace period of 7 s"
		ours   = "lastcall, with other clients' idle connections"
		wait   = "lastcall wait as the app's preStop"
		native = "native sidecar; " + wait
		exits  = "the app exits at SIGTERM"
		closes = "the app closes its listener at SIGTERM, then finishes"
	)
	return []Strategy{
		{Name: "istio-default", Group: istio, Sidecar: Fixed, App: ClosesListener,
			Words: "fixed: terminationDrainDuration of 5 s, then the proxy is killed"},
		{Name: "istio-drain-30s", Group: istio, Sidecar: Fixed, TerminationDrain: longFixedDrain, App: ClosesListener,
			Words: "terminationDrainDuration: 30s, a fixed sleep whether the pod is idle or not"},
		{Name: "istio-exit-on-zero", Group: istio, Sidecar: ExitOnZero, App: ClosesListener,
			Words: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS: polls once a second, counts connections"},
		{Name: "istio-exit-on-zero-idle", Group: istio, Sidecar: ExitOnZero, App: ClosesListener, Idle: true,
			Words: "the same with another client's idle connection, which counts as well"},
		{Name: "istio-native", Group: istio, Sidecar: IstioNative, App: Exits,
			Words: "native sidecar: /drain in its preStop, exit at SIGTERM; nothing delays the app; " + exits},
		{Name: "prestop-netstat", Group: hooks, Sidecar: Fixed, Netstat: true, App: ClosesListener,
			Words: "netstat loop on the proxy; " + closes},
		{Name: "prestop-sleep-5", Group: hooks, Sidecar: Fixed, Sleep: 5 * time.Second, App: Exits,
			Words: "sleep 5 on app and proxy; " + exits},
		{Name: "prestop-sleep-15", Group: hooks, Sidecar: Fixed, Sleep: 15 * time.Second, App: Exits,
			Words: "sleep 15 on app and proxy; " + exits},
		{Name: "grace-7s-istio", Group: short, Sidecar: ExitOnZero, App: ClosesListener, Grace: shortGrace,
			Words: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS, which has no deadline before SIGKILL"},
		{Name: "grace-7s-lastcall", Group: short, Sidecar: Lastcall, App: Exits, Grace: shortGrace,
			Words: "the last call comes before SIGKILL: an orderly 503, and a report that names the request",
			Envoy: "the last call comes before SIGKILL: Envoy exits in order, and the report names the client"},
		{Name: "lastcall-classic-exit", Group: ours, Sidecar: Lastcall, App: Exits, Idle: true,
			Words: wait + "; " + exits},
		{Name: "lastcall-classic-close-listener", Group: ours, Sidecar: Lastcall, App: ClosesListener, Idle: true,
			Words: wait + "; " + closes},
		{Name: "lastcall-native-exit", Group: ours, Sidecar: LastcallNative, App: Exits, Idle: true,
			Words: native + "; " + exits},
		{Name: "lastcall-native-close-listener", Group: ours, Sidecar: LastcallNative, App: ClosesListener, Idle: true,
			Words: native + "; " + closes},
	}
}

// NextToIstio returns the strategies that need Istio's own agent.
func NextToIstio() []Strategy {
	const (
		group = "lastcall wait --envoy next to Istio's agent"
		exits = "the app exits at SIGTERM"
	)
	return []Strategy{
		{Name: "lastcall-istio-classic", Group: group, Sidecar: Hooks, App: Exits, Idle: true,
			Words: "lastcall wait --envoy as the preStop of app and istio-proxy; " + exits},
		{Name: "lastcall-istio-native", Group: group, Sidecar: HooksNative, App: Exits, Idle: true,
			Words: "native sidecar with Istio's own preStop; lastcall wait --envoy as the app's; " + exits},
	}
}

// Select returns the named strategies in the order of all; no names means all.
func Select(all []Strategy, names []string) ([]Strategy, error) {
	if len(names) == 0 {
		return all, nil
	}
	var out []Strategy
	list := make([]string, len(all))
	for i, s := range all {
		if list[i] = s.Name; slices.Contains(names, s.Name) {
			out = append(out, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(list, name) {
			return nil, fmt.Errorf("unknown strategy %q: must be one of %s", name, strings.Join(list, ", "))
		}
	}
	return out, nil
}

const (
	// DefaultGrace is terminationGracePeriodSeconds' default.
	DefaultGrace = 30 * time.Second

	maxGrace = time.Hour
)

// CheckGrace returns an error for an invalid grace period.
func CheckGrace(d time.Duration) error {
	if d < time.Second || d > maxGrace || d%time.Second != 0 {
		return fmt.Errorf("is %v: must be 1s to %v in whole seconds, as terminationGracePeriodSeconds is", d, maxGrace)
	}
	return nil
}
