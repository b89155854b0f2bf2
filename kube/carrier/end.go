package carrier

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Statuses are those of all containers of a pod.
func Statuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// HasEnded reports whether all containers of a pod have ended, its native sidecars included.
func HasEnded(p *corev1.Pod) bool {
	all := Statuses(p)
	return len(all) > 0 && !slices.ContainsFunc(all, func(s corev1.ContainerStatus) bool { return s.State.Terminated == nil })
}

// killedCode is the exit code of a container that SIGKILL ended: 128 + 9.
const killedCode = 137

// IsKilled reports whether SIGKILL ended a container, and not because its memory was used up.
func IsKilled(end *corev1.ContainerStateTerminated) bool {
	return end != nil && end.ExitCode == killedCode && end.Reason != "OOMKilled"
}
