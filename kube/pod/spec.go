// Package pod reads a pod's manifest: which proxy carries its traffic (CarrierOf, MeshOf), lastcall's own parts in it,
// and what its containers do when they end: a preStop hook as a list of steps (ReadHook), a program's reaction to a
// signal (Reacts), which container serves (Serves), and the timers that a server's arguments set (TimersOf). What the
// manifest does not show is Unknown, and never guessed.
package pod

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
)

// Names in an injected pod.
const (
	Sidecar    = "lastcall"      // lastcall's container
	PortStatus = "http-lastcall" // the name of its status port
	HookToken  = "LASTCALL_HOOK_TOKEN"

	// AnnotationMinimumDrain sets the minimum drain of an injected pod (docs/configuration.md).
	AnnotationMinimumDrain = "lastcall.dev/minimum-drain"

	// AnnotationStatus is the result of injection, and the reason; it begins with Injected.
	AnnotationStatus = "lastcall.dev/status"
	Injected         = "injected"

	IstioProxy     = "istio-proxy"
	IstioTemplates = "inject.istio.io/templates"

	// LabelInjected, with LabelInjectedValue, is on every injected pod: watches and kubectl get pods -l select by it.
	LabelInjected      = "lastcall.dev/injected"
	LabelInjectedValue = "true"
)

// DebugPorts are those that pilot-agent request connects to; it fails with any other.
func DebugPorts() []int {
	return []int{istio.AdminPort, istio.DebugPort, istio.StatusPort, istio.HealthPort}
}

// Token matches the token of a hook, as part of a path.
var Token = regexp.MustCompile(`^[A-Za-z0-9_-]{16,128}$`)

// Namespace is the pod's namespace.
type Namespace struct {
	Name   string
	Labels map[string]string

	Annotations map[string]string // those of MeshKeys
}

// Containers are the init containers, then the others.
func Containers(spec *corev1.PodSpec) []*corev1.Container {
	return Each(spec.InitContainers, spec.Containers)
}

// Each is each container of lists.
func Each(lists ...[]corev1.Container) []*corev1.Container {
	all := make([]*corev1.Container, 0, len(lists[0])+len(lists[len(lists)-1]))
	for _, list := range lists {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// HasRequests reports whether a container has a port for users' requests.
func HasRequests(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return IsForRequests(p.Name) })
}

// Find returns the container or init container with this name, or nil.
func Find(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, c := range Containers(spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// SharesProcesses reports whether the containers see each other's processes: PID 1 is the pod's pause process then.
func SharesProcesses(spec *corev1.PodSpec) bool { return ptr.Deref(spec.ShareProcessNamespace, false) }

// IsWindows reports whether the pod runs on Windows.
func IsWindows(spec *corev1.PodSpec) bool {
	return spec.OS != nil && spec.OS.Name == corev1.Windows ||
		spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows)
}

// hasPID1 reports whether the main process of each container is PID 1 of a namespace of its own.
func hasPID1(spec *corev1.PodSpec) bool { return !SharesProcesses(spec) && !spec.HostPID }

// Variable returns the value of a variable in a container's environment, the last one of that name; false if it is not
// set, or the container nil.
func Variable(c *corev1.Container, name string) (string, bool) {
	if c == nil {
		return "", false
	}
	for _, e := range slices.Backward(c.Env) {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}

// IsOurs reports whether the pod is already injected.
func IsOurs(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Annotations[AnnotationStatus], Injected)
}

// Seconds is the duration of a pod's field, 0 to 68 years: the API server admits numbers that no time.Duration holds.
func Seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt32)) * time.Second
}

// cronSuffix is the part that a CronJob adds to the names of its Jobs: the minute of the run, or since 1.21 that of its
// schedule.
var cronSuffix = regexp.MustCompile(`-\d{7,}$`)

// NoWorkload is WorkloadOf a pod without a controller.
const NoWorkload = "pod"

// WorkloadOf is the kind and name by which people know a pod, in lower case as in kubectl rollout: deployment/web. A
// pod without a controller is "pod": its name would be a new series for each pod.
func WorkloadOf(m *metav1.ObjectMeta) string {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return NoWorkload
	}
	kind, name := strings.ToLower(owner.Kind), owner.Name
	switch kind {
	case "replicaset":
		if hash := cmp.Or(m.Labels["pod-template-hash"], m.Labels["rollouts-pod-template-hash"]); hash != "" {
			if cut, ok := strings.CutSuffix(name, "-"+hash); ok {
				kind, name = "deployment", cut
				if m.Labels["rollouts-pod-template-hash"] != "" {
					kind = "rollout"
				}
			}
		}
	case "job":
		if cut := cronSuffix.ReplaceAllString(name, ""); cut != name {
			kind, name = "cronjob", cut
		}
	case "node": // the mirror of a static pod
		return NoWorkload
	}
	return kind + "/" + name
}

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
