package plan

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Way is what stops a pod: as its manifest has it, or as another product would.
type Way string

const (
	AsIs         Way = "as-is"
	Bare         Way = "bare"
	Lastcall     Way = "lastcall"
	IstioClassic Way = "istio-classic"
	IstioNative  Way = "istio-native"
	Ambient      Way = "ambient"
	Linkerd      Way = "linkerd"
)

// Ways are all of them, in the order in which they are shown.
func Ways() []Way { return []Way{AsIs, Bare, IstioClassic, IstioNative, Ambient, Linkerd, Lastcall} }

// titles are the ways for people.
var titles = map[Way]string{
	AsIs: "as the manifest has it", Bare: "without a mesh", IstioClassic: "Istio, classic sidecar", IstioNative: "Istio, native sidecar",
	Ambient: "Istio ambient", Linkerd: "linkerd", Lastcall: "lastcall",
}

// Title is the way for people.
func (w Way) Title() string { return titles[w] }

// apply returns a pod that ends this way: a copy without other proxies.
func (w Way) apply(pod *corev1.Pod) *corev1.Pod {
	if w == AsIs {
		return pod
	}
	pod = pod.DeepCopy()
	if w != Lastcall { // which completes the mesh that is there
		without(pod)
	}
	switch w {
	case Bare:
		set(&pod.Labels, "sidecar.istio.io/inject", "false")
		set(&pod.Annotations, "linkerd.io/inject", "disabled")
		delete(pod.Annotations, "proxy.istio.io/config")
	case Lastcall:
		set(&pod.Labels, inject.AnnotationInject, "true")
	case IstioClassic, IstioNative:
		set(&pod.Labels, "sidecar.istio.io/inject", "true")
		set(&pod.Annotations, "sidecar.istio.io/nativeSidecar", strconv.FormatBool(w == IstioNative))
	case Ambient:
		set(&pod.Labels, "istio.io/dataplane-mode", "ambient")
		delete(pod.Annotations, "proxy.istio.io/config")
	case Linkerd:
		set(&pod.Annotations, "linkerd.io/inject", "enabled")
	}
	return pod
}

// set sets a label or an annotation.
func set(keys *map[string]string, name, value string) {
	if *keys == nil {
		*keys = map[string]string{}
	}
	(*keys)[name] = value
}

// options are those of the way: the namespace's own injection must not add a second mesh.
func (w Way) options(o termination.Options) termination.Options {
	if w != AsIs && w != Lastcall {
		o.Namespace.Labels, o.Namespace.Annotations = nil, nil
	}
	return o
}

// without takes meshes and lastcall out of a pod.
func without(pod *corev1.Pod) {
	for range 3 { // Istio's, another's, lastcall's own
		_, proxy := carrier.MeshOf(pod, inject.Namespace{})
		if proxy == nil {
			break
		}
		name := proxy.Name
		is := func(c corev1.Container) bool { return c.Name == name }
		pod.Spec.InitContainers = slices.DeleteFunc(pod.Spec.InitContainers, is)
		pod.Spec.Containers = slices.DeleteFunc(pod.Spec.Containers, is)
	}
	for _, keys := range []map[string]string{pod.Labels, pod.Annotations} {
		for _, key := range append(carrier.MeshKeys(), inject.AnnotationInject, "sidecar.istio.io/inject", "istio.io/rev", "istio.io/dataplane-mode", "ambient.istio.io/redirection") {
			delete(keys, key)
		}
	}
}
