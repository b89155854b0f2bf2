package peers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// form is how Envoy and the program that ends it share the pod.
type form int

const (
	sidecar         form = iota // one container with Envoy as its child, and the app's
	nativeSidecar               // the same as a restartable init container
	gateway                     // one container with Envoy as its child; the app is elsewhere
	managed                     // Envoy and a shutdown manager, a container each; the app is elsewhere
	lastcallPod                 // lastcall agent --proxy envoy, and the app's
	originalPod                 // Istio's own agent with Envoy as its child, and the app's
	lastcallManager             // Envoy and lastcall agent --admin-address, a container each; the app is elsewhere
)

// hasApp reports whether the app is in the pod and ends with it.
func (f form) hasApp() bool {
	return f == sidecar || f == nativeSidecar || f == originalPod || f == lastcallPod
}

// Peer is a tool that ends an Envoy.
type Peer struct {
	Name   string
	Words  string
	Source string // project and file that its model follows

	form      form
	app       strategy.SIGTERMBehaviour
	grace     time.Duration // terminationGracePeriodSeconds of its manifests, or Kubernetes' default
	envoyArgs []string      // its arguments for Envoy

	original strategy.Sidecar // what its model imitates, if it can run here

	// atTerm is what the agent does at SIGTERM. When it returns, the agent has ended and its Envoy is killed. ctx ends when
	// Envoy has.
	atTerm func(ctx context.Context, a admin)

	// preStop is the agent's hook; nil: none.
	preStop func(ctx context.Context, a admin)

	// manager returns the two hooks of a shutdown manager.
	manager func() hooks

	expect func(c circumstances) expectation
}

// by is the peer with Istio's own agent in place of its model, if there is one.
func (p Peer) by(pilotAgent string) Peer {
	if p.original != strategy.NoSidecar && pilotAgent != "" {
		p.form, p.Words = originalPod, p.Words+" (the original)"
		p.Source = strings.TrimSpace("pilot-agent " + strategy.PilotAgentVersion(pilotAgent))
	}
	return p
}

// hooks are two preStop hooks of one pod.
type hooks struct {
	manager func(ctx context.Context, a admin) // drains, and signals its end
	envoy   func(ctx context.Context)          // waits for the signal
}

// defaultGrace is Kubernetes' terminationGracePeriodSeconds.
const defaultGrace = 30 * time.Second

// All returns the peers in the order of the tables.
func All() []Peer {
	var out []Peer
	for _, list := range [][]Peer{istio(), envoyGateway(), contour(), consul(), kuma(), lastcall()} {
		out = append(out, list...)
	}
	return out
}

// choose returns the named peers in the order of the tables; no names means all.
func choose(names []string) ([]Peer, error) {
	all := All()
	if len(names) == 0 {
		return all, nil
	}
	wanted := make(map[string]bool, len(names))
	for _, n := range names {
		wanted[n] = true
	}
	var out []Peer
	var known []string
	for _, p := range all {
		known = append(known, p.Name)
		if wanted[p.Name] {
			out = append(out, p)
			delete(wanted, p.Name)
		}
	}
	for _, n := range names {
		if wanted[n] {
			return nil, fmt.Errorf("unknown peer %q: must be one of %s", n, strings.Join(known, ", "))
		}
	}
	return out, nil
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool { return node.Sleep(d).Run(ctx) == nil }
