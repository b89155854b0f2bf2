// Package podend computes how a pod ends under given traffic: when each container gets its stop signal and SIGKILL,
// until when new connections are accepted, and when requests in flight are cut.
//
// The rules are the kubelet's (killContainersWithSyncResult and killContainer of pkg/kubelet/kuberuntime):
//
//   - All preStop hooks begin at once. A hook's time is part of the grace period.
//   - A container gets its stop signal when its hook has ended; a native sidecar (KEP-753) also waits until the
//     containers before it have ended.
//   - SIGKILL comes when the rest of the grace period has passed, whole seconds of the hook subtracted, at least 2 s.
//
// The proxies' rules are those of their own sources: drain's for lastcall and Istio's agent, docs/linkerd.md and
// docs/other-meshes.md for the others. Rehearsals are judged, plans drawn and timers advised by them.
package podend

import (
	"fmt"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Role is the purpose of a container in the termination.
type Role string

const (
	App     Role = "app"
	Proxy   Role = "proxy"   // carries the pod's traffic
	Sidecar Role = "sidecar" // the pod's own native sidecar
	Behind  Role = "behind"  // another container passes requests to it
	Worker  Role = "worker"  // works through a queue, and has no clients: lastcall wait --until
	Aside   Role = "helper"  // an ordinary container that serves no one, such as one that ships logs
)

// Reaction is a container's behaviour at its stop signal.
type Reaction string

// The reactions of apps.
const (
	Exits    Reaction = "exits"     // at once: requests in flight are cut
	Finishes Reaction = "finishes"  // closes its listener, answers the requests in flight, then exits
	ServesOn Reaction = "serves-on" // accepts until no request is in flight, then exits
	Ignores  Reaction = "ignores"   // serves until SIGKILL, as a PID 1 without a signal handler does

	ClosesPort Reaction = "closes its port" // and either cuts its requests in flight or finishes them
	Reloads    Reaction = "reloads"         // cuts its requests in flight, and serves again until SIGKILL
	Unsure     Reaction = "unknown"         // any of these
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
	Name   string
	Role   Role
	Native bool // an init container with restartPolicy Always: it stops after the others

	Hook     Hook
	Reaction Reaction
	Drain    time.Duration // of FixedDrain, of Refuses, and the minimum of PollsZero; of Finishes if it has a limit

	// Blind, of Waits: it does not learn of the apps' end, and stays until the end of the grace period.
	Blind bool

	isFollowed bool // its own hook stops it, and the kubelet's stop signal, which follows, ends its Drain
}

// HookKind is the action of a preStop hook.
type HookKind string

const (
	NoHook     HookKind = "none"
	SleepHook  HookKind = "sleep"     // Kubernetes' own, or an exec that only sleeps
	DrainHook  HookKind = "drain"     // lastcall wait: until no request is in flight
	AppEndHook HookKind = "app's end" // lastcall wait --sidecar: until the apps have ended
	NotifyHook HookKind = "notify"    // starts a proxy's drain and returns at once: Istio's native sidecar
	LoopHook   HookKind = "loop"      // waits in a shell's loop, such as over netstat
	ScriptHook HookKind = "script"    // another program, of unknown duration
	HTTPHook   HookKind = "http"      // an HTTP request to the app, of unknown duration
)

// Hook is a container's preStop.
type Hook struct {
	Kind HookKind

	// Duration is how long it takes, or at least takes if it is not IsKnown.
	Duration time.Duration
	IsKnown  bool

	// Own, of DrainHook, is the app's own hook that it runs after its wait, or before it if OwnFirst; nil for none.
	Own      *Hook
	OwnFirst bool

	// Stops: it ends its container's app itself, StopsAt after the deletion, or also later if StopsLater, and the app
	// reacts to that with Stop. MayStop: it is unknown whether it does, from StopsAt on.
	Stops, StopsLater, MayStop bool
	StopsAt                    time.Duration
	Stop                       Reaction

	Most time.Duration // how long it takes at most, if it is not IsKnown; 0: until SIGKILL

	// Text is the hook as the manifest has it, in one line.
	Text string
}

// String is the hook for people.
func (h Hook) String() string {
	switch h.Kind {
	case NoHook:
		return "none"
	case SleepHook:
		return fmt.Sprintf("sleep %v", h.Duration)
	case DrainHook:
		switch {
		case h.Own != nil && h.OwnFirst:
			return "lastcall wait: first " + h.Own.String() + ", then until no request is in flight"
		case h.Own != nil:
			return "lastcall wait: until no request is in flight, then " + h.Own.String()
		}
		return "lastcall wait: until no request is in flight"
	case AppEndHook:
		return "lastcall wait --sidecar: until the apps have ended"
	case NotifyHook:
		return "pilot-agent request POST drain"
	}
	return h.Text
}

// Pod has the settings that decide how a pod ends.
type Pod struct {
	Grace time.Duration // from the deletion to SIGKILL; less than LeastPeriod is as much

	// Containers in the order in which they stop: the ordinary ones, which stop together, then native sidecars in reverse
	// order.
	Containers []Container

	HasLastcall bool
	Drain       drain.Config // lastcall's

	// LastCall is when lastcall ends the remaining requests, from the deletion; 0 without lastcall.
	LastCall time.Duration
}

// SetDrain sets lastcall's timers.
func (p *Pod) SetDrain(c drain.Config) {
	p.HasLastcall, p.Drain = true, c
	if c.GracePeriod > 0 {
		p.Drain.GracePeriod = min(c.GracePeriod, p.Grace)
		p.LastCall = p.Drain.LastCallAfter()
	}
}

// HasProxy reports whether a container of the pod carries its traffic.
func (p *Pod) HasProxy() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Role == Proxy })
}

// Spare is the part of a grace period beyond the end of the last request: the app gets its stop signal, and exits.
const Spare = time.Second

// Grace is the least grace period, in whole seconds, of a pod whose last request ends so long after the deletion.
func Grace(lastEnds time.Duration) time.Duration { return WholeSeconds(lastEnds) + Spare }

// WholeSeconds rounds up, because the fields of a pod are whole seconds.
func WholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// LeastPeriod is the kubelet's shortest grace period (calculateEffectiveGracePeriod of pkg/kubelet): a pod whose own is
// 0 has its hooks run for so long, then its stop signals, and 2 s later SIGKILL.
const LeastPeriod = time.Second

// Stopped is the pod as the kubelet stops it, in which each app reacts to what its own hook does to it. The kubelet's
// stop signal follows, and cuts what an app still finishes that exits at it: nginx, measured, at SIGTERM after SIGQUIT,
// and HAProxy at SIGTERM after SIGUSR1.
func (p *Pod) Stopped() *Pod {
	out := *p
	out.Grace = max(p.Grace, LeastPeriod)
	out.Containers = slices.Clone(p.Containers)
	for i := range out.Containers {
		k := &out.Containers[i]
		if h := k.Hook.own(); h.Stops && h.Stop != "" {
			k.isFollowed = k.isFollowed || k.isGoneAtOnce() || h.Stop == Refuses
			k.Reaction = h.Stop
		}
	}
	return &out
}

// own is the hook, or the app's own that lastcall's runs.
func (h Hook) own() Hook {
	if h.Own != nil {
		return *h.Own
	}
	return h
}

// stopsAt is when a container's hook ends its app, if it does or may do so.
func (p *Pod) stopsAt(k *Container, tr Traffic) (time.Duration, bool) {
	h := k.Hook.own()
	at := h.StopsAt
	if k.Hook.Own != nil && !k.Hook.OwnFirst {
		at = p.after(tr, at)
	}
	return min(at, p.Grace), h.Stops || h.MayStop
}
