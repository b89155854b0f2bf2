package termination

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Options are what a manifest does not show.
type Options struct {
	// Namespace the pod will be in: its labels can enable injection.
	Namespace inject.Namespace

	// MeshConfig is the text of Istio's MeshConfig; empty for none.
	MeshConfig string

	// Istio is the form of a sidecar that Istio's injector will add; empty is inject.Native, the default of Istio 1.27 and
	// later. The pod's annotation sidecar.istio.io/nativeSidecar has precedence.
	Istio inject.Sidecar

	// App is what the app containers do at their stop signal; empty is Exits.
	App Reaction
}

// Setting is a value and where it was set: "default", or such as "annotation proxy.istio.io/config".
type Setting struct {
	Name   string
	Value  string
	Source string
}

// Role is the purpose of a container in the termination.
type Role string

const (
	App     Role = "app"
	Proxy   Role = "proxy"   // carries the pod's traffic
	Sidecar Role = "sidecar" // the pod's own native sidecar
)

// Reaction is what a container does at its stop signal.
type Reaction string

// The reactions of apps.
const (
	Exits    Reaction = "exits"     // at once: requests in flight are cut
	Finishes Reaction = "finishes"  // closes its listener, answers the requests in flight, then exits
	ServesOn Reaction = "serves-on" // accepts until no request is in flight, then exits
	Ignores  Reaction = "ignores"   // serves until SIGKILL, as a PID 1 without a signal handler does
)

// The reactions of proxies.
const (
	Waits      Reaction = "waits"            // lastcall: serves until no request is in flight
	FixedDrain Reaction = "fixed drain"      // serves for Drain, then exits, whatever is in flight
	PollsZero  Reaction = "polls for zero"   // Istio's EXIT_ON_ZERO_ACTIVE_CONNECTIONS: until no connection is open
	Refuses    Reaction = "refuses new ones" // linkerd: closes its listener, waits for open connections, Drain at most
)

// Reactions are those that an app can have.
func Reactions() []Reaction { return []Reaction{Exits, Finishes, ServesOn, Ignores} }

// Container is one container of the pod, when it stops.
type Container struct {
	Name    string
	Role    Role
	Native  bool // an init container with restartPolicy Always: it stops after the others
	Assumed bool // not in the manifest: the mesh's injector adds it

	PreStop    Hook
	StopSignal Setting
	Reaction   Reaction
	Drain      time.Duration // of FixedDrain, of Refuses, and the minimum of PollsZero
	Readiness  *corev1.Probe // nil without one

	// Settings that decide how it ends, with their sources.
	Settings []Setting
}

// Termination is how a pod ends.
type Termination struct {
	// Grace is terminationGracePeriodSeconds.
	Grace Setting

	// Mesh carries the traffic: carrier.MeshIstio and others, or "" for none. In a pod with lastcall it can be both.
	Mesh     string
	Lastcall bool

	// Containers in the order in which they stop: the ordinary ones, which stop together, then native sidecars in reverse
	// order.
	Containers []Container

	// LastCall is when lastcall ends the remaining requests, from the deletion; 0 without lastcall.
	LastCall time.Duration

	// Notes are assumptions, one sentence each.
	Notes []string

	grace time.Duration
	drain drain.Config // lastcall's
}

// GracePeriod is the time from the deletion to SIGKILL; 0 kills at once.
func (t *Termination) GracePeriod() time.Duration { return t.grace }

// HasProxy reports whether a container of the pod carries its traffic.
func (t *Termination) HasProxy() bool {
	for i := range t.Containers {
		if t.Containers[i].Role == Proxy {
			return true
		}
	}
	return false
}

func (t *Termination) note(text string) { t.Notes = append(t.Notes, text) }
