package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// finishing names the pod's apps if all of those that serve are known to finish at their stop signals. Apps without a
// port do not count.
func finishing(p *corev1.Pod) []string {
	var out []string
	for _, c := range apps(&p.Spec) {
		signal, _ := pod.StopSignal(c)
		reaction, server := pod.Reacts(&p.Spec, c, signal, true)
		switch {
		case reaction == course.Finishes:
			out = append(out, server+" at "+signal)
		case slices.ContainsFunc(c.Ports, isTCP):
			return nil
		}
	}
	return out
}
