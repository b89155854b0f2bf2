// Package strategy has the strategies of a rehearsal, which are ways to stop a pod, and starts the pods and gateways
// that show them: real processes on loopback.
package strategy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Sidecar is the kind of sidecar, and how it ends at SIGTERM.
type Sidecar int

const (
	NoSidecar      Sidecar = iota // the app alone
	Fixed                         // Istio: sleep terminationDrainDuration, then kill
	ExitOnZero                    // Istio: EXIT_ON_ZERO_ACTIVE_CONNECTIONS
	IstioNative                   // Istio: native sidecar, /drain in preStop, exit at SIGTERM
	Lastcall                      // lastcall as a classic sidecar
	LastcallNative                // lastcall as a native sidecar
	Hooks                         // Istio's agent, with lastcall wait --envoy as the hooks of app and sidecar
	HooksNative                   // Istio's agent as a native sidecar; lastcall wait --envoy as the app's hook
)

const (
	istioFixedDrain = 5 * time.Second // Istio's default terminationDrainDuration
	longFixedDrain  = 30 * time.Second
	shortGrace      = 7 * time.Second // of the rows with a short grace period
)

// IsLastcall reports whether lastcall ends the pod, in its own mode.
func (s Sidecar) IsLastcall() bool { return s == Lastcall || s == LastcallNative || s.IsHooks() }

// IsHooks reports whether lastcall is there as hooks alone.
func (s Sidecar) IsHooks() bool { return s == Hooks || s == HooksNative }

// IsNative reports whether it is a restartable init container.
func (s Sidecar) IsNative() bool { return s == IstioNative || s == LastcallNative || s == HooksNative }

// IsIstio reports whether it is Istio's agent, its own or an imitation.
func (s Sidecar) IsIstio() bool {
	return s == Fixed || s == ExitOnZero || s == IstioNative || s.IsHooks()
}

// SIGTERMBehaviour is an app's behaviour at SIGTERM.
type SIGTERMBehaviour int

const (
	Exits          SIGTERMBehaviour = iota // exits at once and drops requests in flight
	ClosesListener                         // closes its listening socket at once, finishes the requests in flight
)

// Strategy is a way of stopping a pod.
type Strategy struct {
	Name  string
	Group string // title of the group in the table
	Words string // description, in one line
	Envoy string // Words with a real Envoy as the sidecar, if different

	Sidecar          Sidecar
	App              SIGTERMBehaviour // of the built-in app
	TerminationDrain time.Duration    // of Fixed
	Sleep            time.Duration    // preStop sleep of the app and of the sidecar
	SocketWait       bool             // the app's preStop hook is lastcall wait --ports, without a sidecar
	Netstat          bool             // the sidecar's preStop hook waits until only the proxy listens
	Grace            time.Duration    // instead of the pod's; zero: the pod's
	Idle             bool             // other clients hold idle connections to the sidecar
}

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
		{Name: "istio-default", Group: istio, Sidecar: Fixed, TerminationDrain: istioFixedDrain, App: ClosesListener,
			Words: "fixed: terminationDrainDuration of 5 s, then the proxy is killed"},
		{Name: "istio-drain-30s", Group: istio, Sidecar: Fixed, TerminationDrain: longFixedDrain, App: ClosesListener,
			Words: "terminationDrainDuration: 30s, a fixed sleep whether the pod is idle or not"},
		{Name: "istio-exit-on-zero", Group: istio, Sidecar: ExitOnZero, App: ClosesListener,
			Words: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS: polls once a second, counts connections"},
		{Name: "istio-exit-on-zero-idle", Group: istio, Sidecar: ExitOnZero, App: ClosesListener, Idle: true,
			Words: "the same with another client's idle connection, which counts as well"},
		{Name: "istio-native", Group: istio, Sidecar: IstioNative, App: Exits,
			Words: "native sidecar: /drain in its preStop, exit at SIGTERM; nothing delays the app; " + exits},
		{Name: "prestop-netstat", Group: hooks, Sidecar: Fixed, TerminationDrain: istioFixedDrain, Netstat: true,
			App:   ClosesListener,
			Words: "netstat loop on the proxy; " + closes},
		{Name: "prestop-sleep-5", Group: hooks, Sidecar: Fixed, TerminationDrain: istioFixedDrain, Sleep: 5 * time.Second,
			App:   Exits,
			Words: "sleep 5 on app and proxy; " + exits},
		{Name: "prestop-sleep-15", Group: hooks, Sidecar: Fixed, TerminationDrain: istioFixedDrain, Sleep: 15 * time.Second,
			App:   Exits,
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

// GraceOr is the strategy's own grace period, or grace.
func (s Strategy) GraceOr(grace time.Duration) time.Duration {
	if s.Grace > 0 {
		return s.Grace
	}
	return grace
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

const maxGrace = time.Hour

// CheckGrace returns an error for an invalid grace period.
func CheckGrace(d time.Duration) error {
	if d < time.Second || d > maxGrace || d%time.Second != 0 {
		return fmt.Errorf("is %v: must be 1s to %v in whole seconds, as terminationGracePeriodSeconds is", d, maxGrace)
	}
	return nil
}
