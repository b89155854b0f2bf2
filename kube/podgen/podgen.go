package podgen

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RuntimeClass is the one that some pods ask for. An API server admits them only if there is one of that name.
const RuntimeClass = "podgen-sandboxed"

// generator draws from one source, so that the seed is all that a pod depends on.
type generator struct{ *rand.Rand }

func (g generator) chance(p float64) bool { return g.Float64() < p }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

func to[T any](v T) *T { return &v }

// Pods makes n pods, all different. The i-th pod of a seed does not depend on n.
func Pods(seed uint64, n int) []*corev1.Pod {
	all := make([]*corev1.Pod, n)
	for i := range all {
		g := generator{rand.New(rand.NewPCG(seed, uint64(i)))}
		pod := g.ofShape(i)
		for _, v := range variations {
			g.vary(v, pod, &pod.Spec.Containers[0])
		}
		settle(pod)
		all[i] = pod
	}
	return all
}

// settle puts right what variations have made together and the API server would refuse.
func settle(pod *corev1.Pod) {
	spec := &pod.Spec
	grace := int64(30)
	if spec.TerminationGracePeriodSeconds != nil {
		grace = *spec.TerminationGracePeriodSeconds
	}
	each(spec, func(c *corev1.Container) {
		if spec.HostNetwork { // a port is the node's then
			for i := range c.Ports {
				c.Ports[i].HostPort = c.Ports[i].ContainerPort
			}
		}
		if c.Lifecycle == nil {
			return
		}
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PreStop, c.Lifecycle.PostStart} {
			if h != nil && h.Sleep != nil { // 0 to the grace period
				h.Sleep.Seconds = min(h.Sleep.Seconds, grace)
			}
		}
	})
	if spec.HostPID {
		spec.ShareProcessNamespace = nil
	}
	if isWindows(pod) {
		forWindows(spec)
	}
	if spec.HostNetwork {
		spec.HostUsers = nil
		if s := spec.SecurityContext; s != nil {
			s.Sysctls = nil
		}
	}
}

func isWindows(pod *corev1.Pod) bool {
	return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows
}

// forWindows takes away what only Linux has.
func forWindows(spec *corev1.PodSpec) {
	spec.SecurityContext, spec.ShareProcessNamespace, spec.HostUsers, spec.Resources = nil, nil, nil, nil
	spec.HostPID, spec.HostIPC, spec.HostNetwork = false, false, false
	each(spec, func(c *corev1.Container) { c.SecurityContext = nil })
}

func each(spec *corev1.PodSpec, f func(*corev1.Container)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		f(&spec.Containers[i])
	}
}

// serving are the containers that run as long as the pod: apps and native sidecars.
func serving(spec *corev1.PodSpec, f func(*corev1.Container)) {
	each(spec, func(c *corev1.Container) {
		for i := range spec.InitContainers {
			if &spec.InitContainers[i] == c && c.RestartPolicy == nil {
				return
			}
		}
		f(c)
	})
}

// Doubling is a pod whose variables grow when they are expanded: each refers twice to the one before.
func Doubling(levels int) *corev1.Pod {
	c := corev1.Container{Name: "web", Image: "web:1", Env: []corev1.EnvVar{{Name: "E0", Value: "0123456789"}}}
	for i := range levels {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", i+1), Value: fmt.Sprintf("$(E%d)$(E%d)", i, i)})
	}
	c.Args = []string{fmt.Sprintf("$(E%d)", levels)}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{c}},
	}
}
