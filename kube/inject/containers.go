package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

// apps are the containers that the kubelet ends when the pod ends: all except the
// proxies, lastcall's and those of meshes. Init containers are not among them.
func apps(spec *corev1.PodSpec) []*corev1.Container {
	var out []*corev1.Container
	for i := range spec.Containers {
		if c := &spec.Containers[i]; !pod.IsProxy(spec, c) {
			out = append(out, c)
		}
	}
	return out
}

// probed are the containers whose probes the kubelet runs: the apps and their own native sidecars.
func probed(spec *corev1.PodSpec) []*corev1.Container {
	out := apps(spec)
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; pod.IsNative(c) && !pod.IsProxy(spec, c) {
			out = append(out, c)
		}
	}
	return out
}

// setVariable replaces or adds one variable; an empty value removes it.
func setVariable(c *corev1.Container, name, value string) {
	if value == "" {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		return
	}
	(*environment)(&c.Env).set(name, value)
}

// setDefault adds a variable unless the manifest has it.
func setDefault(c *corev1.Container, name, value string) {
	if _, isSet := pod.Variable(c, name); !isSet {
		setVariable(c, name, value)
	}
}

// addVolume adds a volume unless the pod has it.
func addVolume(spec *corev1.PodSpec, volume corev1.Volume) {
	if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume.Name }) {
		spec.Volumes = append(spec.Volumes, *volume.DeepCopy())
	}
}

func ptr[T any](v T) *T { return &v }
