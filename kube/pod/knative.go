package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The hook that Knative gives the containers of its pods: its queue-proxy answers when no request has come for so long.
const (
	knativePort  = 8022
	knativeWait  = "/wait-for-drain"
	knativeQuiet = 30 * time.Second
)

// KnativeNote is how the pods of Knative end.
const KnativeNote = "Knative makes the pods: timeoutSeconds is their grace period, its queue-proxy drains them until no " +
	"request has come for 30 s, and it refuses lifecycle"

// Knative is the pod with the hooks that Knative gives its containers.
func Knative(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	for i := range p.Spec.Containers {
		SetHook(&p.Spec.Containers[i], &corev1.LifecycleHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: knativeWait, Port: intstr.FromInt32(knativePort)},
		})
	}
	return p
}
