package strategy

import (
	"fmt"
	"strings"
	"time"
)

// Way is what the sidecar does when it is told to stop.
type Way int

const (
	NoSidecar      Way = iota // the app alone
	Fixed                     // Istio: sleep terminationDrainDuration, then kill
	ExitOnZero                // Istio: EXIT_ON_ZERO_ACTIVE_CONNECTIONS
	IstioNative               // Istio: native sidecar, /drain in preStop, exit at SIGTERM
	Lastcall                  // lastcall, a container beside the app's
	LastcallNative            // lastcall as a native sidecar
)

const (
	istioFixedDrain = 5 * time.Second // Istio's default terminationDrainDuration
	longFixedDrain  = 30 * time.Second
	shortGrace      = 7 * time.Second // of the rows that are about it
)

// MinimumDrain is MINIMUM_DRAIN_DURATION's default, Istio's and lastcall's.
const MinimumDrain = 5 * time.Second

// IsLastcall tells lastcall's own ways from the others.
func (w Way) IsLastcall() bool { return w == Lastcall || w == LastcallNative }

// IsNative is true of a restartable init container.
func (w Way) IsNative() bool { return w == IstioNative || w == LastcallNative }

// SIGTERMBehaviour is what an app does at SIGTERM.
type SIGTERMBehaviour int

const (
	Exits          SIGTERMBehaviour = iota // dies at once with whatever is in flight
	ClosesListener                         // closes its listening socket at once, finishes what is in flight
	KeepsListener                          // finishes what is in flight and holds its listening socket until then
)

func (m SIGTERMBehaviour) String() string {
	switch m {
	case Exits:
		return "exits at SIGTERM at once, with whatever is in flight"
	case ClosesListener:
		return "closes its listening socket at SIGTERM and finishes what is in flight"
	case KeepsListener:
		return "finishes what is in flight at SIGTERM and keeps its listening socket until then"
	}
	return fmt.Sprintf("SIGTERMBehaviour(%d)", int(m))
}

// Strategy is a way of stopping a pod.
type Strategy struct {
	Name  string
	Group string // strategies of a group stand together
	Words string // what it is, in one line
	Note  string // what the built-in app does, where that matters
	Envoy string // Words with a real Envoy as the sidecar, where they differ

	Way              Way
	App              SIGTERMBehaviour // of the built-in app
	TerminationDrain time.Duration    // of Fixed
	Sleep            time.Duration    // preStop sleep of the app and of the sidecar
	Netstat          bool             // the sidecar's preStop waits until no one but the proxy listens
	Grace            time.Duration    // instead of the pod's; zero: the pod's
	Idle             bool             // other clients hold idle connections to the sidecar
}

// Strategies returns what the rehearsal plays, in the order of its table.
func Strategies() []Strategy {
	const (
		istio  = "Istio's ways"
		hooks  = "preStop hooks, with Istio's default"
		short  = "a grace period of 7 s"
		ours   = "lastcall, with idle connections beside the request"
		wait   = "lastcall wait as the app's preStop"
		native = "native sidecar; " + wait
		exits  = "the app exits at SIGTERM"
		closes = "the app closes its listener at SIGTERM, then finishes"
	)
	return []Strategy{
		{Name: "istio-default", Group: istio, Way: Fixed, TerminationDrain: istioFixedDrain, App: ClosesListener,
			Words: "fixed: terminationDrainDuration of 5 s, then the proxy is killed"},
		{Name: "istio-drain-30s", Group: istio, Way: Fixed, TerminationDrain: longFixedDrain, App: ClosesListener,
			Words: "terminationDrainDuration: 30s, a fixed sleep whether the pod is idle or not"},
		{Name: "istio-exit-on-zero", Group: istio, Way: ExitOnZero, App: ClosesListener,
			Words: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS: looks once a second, counts connections"},
		{Name: "istio-exit-on-zero-idle", Group: istio, Way: ExitOnZero, App: ClosesListener, Idle: true,
			Words: "the same beside another client's idle connection, which counts as well"},
		{Name: "istio-native", Group: istio, Way: IstioNative, App: Exits,
			Words: "native sidecar: /drain in its preStop, exit at SIGTERM; nothing holds the app", Note: exits},
		{Name: "prestop-netstat", Group: hooks, Way: Fixed, TerminationDrain: istioFixedDrain, Netstat: true, App: ClosesListener,
			Words: "netstat loop on the proxy", Note: closes},
		{Name: "prestop-sleep-5", Group: hooks, Way: Fixed, TerminationDrain: istioFixedDrain, Sleep: 5 * time.Second, App: Exits,
			Words: "sleep 5 on app and proxy", Note: exits},
		{Name: "prestop-sleep-15", Group: hooks, Way: Fixed, TerminationDrain: istioFixedDrain, Sleep: 15 * time.Second, App: Exits,
			Words: "sleep 15 on app and proxy", Note: exits},
		{Name: "grace-7s-istio", Group: short, Way: ExitOnZero, App: ClosesListener, Grace: shortGrace,
			Words: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS, which knows no deadline but SIGKILL"},
		{Name: "grace-7s-lastcall", Group: short, Way: Lastcall, App: Exits, Grace: shortGrace,
			Words: "the last call comes before SIGKILL: an orderly 503, and a report that names the request",
			Envoy: "the last call comes before SIGKILL: Envoy leaves in order, and the report names the client"},
		{Name: "lastcall-classic-exit", Group: ours, Way: Lastcall, App: Exits, Idle: true,
			Words: wait, Note: exits},
		{Name: "lastcall-classic-close-listener", Group: ours, Way: Lastcall, App: ClosesListener, Idle: true,
			Words: wait, Note: closes},
		{Name: "lastcall-native-exit", Group: ours, Way: LastcallNative, App: Exits, Idle: true,
			Words: native, Note: exits},
		{Name: "lastcall-native-close-listener", Group: ours, Way: LastcallNative, App: ClosesListener, Idle: true,
			Words: native, Note: closes},
	}
}

// GraceOr is the strategy's own grace period, or else the pod's.
func (s Strategy) GraceOr(grace time.Duration) time.Duration {
	if s.Grace > 0 {
		return s.Grace
	}
	return grace
}

// Select returns the strategies of all that are named, in their order; none
// named means all. An unknown name is an error that lists the known ones.
func Select(all []Strategy, names []string) ([]Strategy, error) {
	if len(names) == 0 {
		return all, nil
	}
	known := make(map[string]bool, len(all))
	list := make([]string, len(all))
	for i, s := range all {
		known[s.Name], list[i] = true, s.Name
	}
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		if !known[name] {
			return nil, fmt.Errorf("unknown strategy %q: must be one of %s", name, strings.Join(list, ", "))
		}
		wanted[name] = true
	}
	var out []Strategy
	for _, s := range all {
		if wanted[s.Name] {
			out = append(out, s)
		}
	}
	return out, nil
}
