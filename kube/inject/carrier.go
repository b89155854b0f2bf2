package inject

import (
	corev1 "k8s.io/api/core/v1"
)

// The names of MeshOf that other packages compare with.
const (
	MeshIstio   = "Istio"
	MeshAmbient = "Istio ambient"
	MeshLinkerd = linkerd
	MeshDapr    = dapr
)

// MeshOf is the name of the mesh that carries the pod's traffic, or will when its injector has seen the pod; empty for
// none. proxy is its container in the pod: nil before the injector has run, and in ambient pods.
func MeshOf(pod *corev1.Pod, ns Namespace) (name string, proxy *corev1.Container) {
	if c := find(&pod.Spec, istioProxy); c != nil || isIstioAsked(pod, ns) {
		return MeshIstio, c
	}
	for _, m := range meshes {
		if !m.isIn(pod, ns) {
			continue
		}
		for _, c := range allContainers(&pod.Spec) {
			if m.owns(&pod.Spec, c) {
				return m.name, c
			}
		}
		return m.name, nil
	}
	if isAmbient(pod, ns) {
		return MeshAmbient, nil
	}
	return "", nil
}
