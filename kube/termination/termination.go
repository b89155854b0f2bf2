// Package termination describes how a pod ends, as data: its containers in the order in which they stop, each with its
// preStop hook, its stop signal and its reaction to that signal; and the mesh and its timers, each with its source. Of
// is a pure function of the pod's manifest. Package course computes from it what happens under given traffic.
package termination

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Options are the settings that a manifest does not show.
type Options struct {
	Namespace  inject.Namespace // that the pod will be in: its labels can enable injection
	MeshConfig string           // the text of Istio's MeshConfig; empty for none

	// Istio is the form of a sidecar that Istio's injector will add; empty is inject.Native, the default of Istio 1.27 and
	// later. The pod's annotation sidecar.istio.io/nativeSidecar has precedence.
	Istio inject.Sidecar

	// App is the reaction of the app containers to their stop signal; empty is that of their programs, as far as the
	// manifest shows it.
	App podend.Reaction

	Knative bool                 // makes the pod, and adds its hooks
	Targets []intstr.IntOrString // of the Services that send the pod requests; empty if they are unknown
}

// Setting is a value and where it was set: "default", or such as "annotation proxy.istio.io/config".
type Setting struct {
	Name   string
	Value  string
	Source string
}

// Container is one container of the pod, when it stops.
type Container struct {
	podend.Container
	Assumed    bool // not in the manifest: the mesh's injector adds it
	StopSignal Setting
	Settings   []Setting // that decide how it ends, with their sources
}

// Termination is how a pod ends.
type Termination struct {
	podend.Pod
	GraceSource string      // where terminationGracePeriodSeconds was set
	Mesh        string      // pod.MeshIstio and others, or "" for none; in a pod with lastcall it can be both
	Containers  []Container // in the order in which they stop
	Notes       []string    // assumptions, one sentence each
}

func (t *Termination) note(text string) { t.Notes = append(t.Notes, text) }
