package pod

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// GraceOf is terminationGracePeriodSeconds, with Kubernetes' default.
func GraceOf(spec *corev1.PodSpec) time.Duration {
	if s := spec.TerminationGracePeriodSeconds; s != nil {
		return Seconds(*s)
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// Deletion is when the API server accepted the deletion of a pod, in whole seconds, and the grace period from then on;
// the zero time before. The API server's rule is that deletionTimestamp is the deadline.
func Deletion(p *corev1.Pod) (at time.Time, grace time.Duration) {
	grace = GraceOf(&p.Spec)
	if p.DeletionTimestamp == nil {
		return time.Time{}, grace
	}
	last := grace
	if s := p.DeletionGracePeriodSeconds; s != nil {
		last = Seconds(*s)
	}
	if last > 0 || !HasEnded(p) { // the kubelet deletes a pod that has ended once more, with 0
		grace = last
	}
	return p.DeletionTimestamp.Add(-last), grace
}

// Statuses are those of all containers of a pod.
func Statuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// HasEnded reports whether all containers of a pod have ended, its native sidecars included.
func HasEnded(p *corev1.Pod) bool {
	all := Statuses(p)
	isLeft := func(s corev1.ContainerStatus) bool { return s.State.Terminated == nil }
	return len(all) > 0 && !slices.ContainsFunc(all, isLeft)
}

// End is how a container ended.
type End struct {
	Code     int32
	IsKilled bool      // by SIGKILL, and not because its memory was used up
	At       time.Time // in whole seconds
	reason   string
}

const (
	killedCode = 137 // of a container that SIGKILL ended: 128 + 9
	noMemory   = "OOMKilled"
)

// EndOf is the end of a container, nil if it has not ended.
func EndOf(s *corev1.ContainerStatus) *End {
	end := s.State.Terminated
	if end == nil {
		return nil
	}
	isKilled := end.ExitCode == killedCode && end.Reason != noMemory
	return &End{Code: end.ExitCode, IsKilled: isKilled, At: end.FinishedAt.Time, reason: end.Reason}
}

// String is "exit 0", "SIGKILL" or "OOMKilled".
func (e *End) String() string {
	switch {
	case e.reason == noMemory:
		return noMemory
	case e.IsKilled:
		return "SIGKILL"
	}
	return fmt.Sprintf("exit %d", e.Code)
}

// Killed are the containers that SIGKILL ended, at a moment or later.
func Killed(p *corev1.Pod, since time.Time) (names []string) {
	for _, s := range Statuses(p) {
		if e := EndOf(&s); e != nil && e.IsKilled && !e.At.Before(since.Truncate(time.Second)) {
			names = append(names, s.Name)
		}
	}
	return names
}
