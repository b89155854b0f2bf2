// Package pod reads a pod's manifest: which proxy carries its traffic (CarrierOf, MeshOf), lastcall's own parts in it,
// and what its containers do when they end: a preStop hook as a list of steps (ReadHook), a program's reaction to a
// signal (Reacts), which container serves (Serves), and the timers that a server's arguments set (TimersOf). What the
// manifest does not show is Unknown, and never guessed.
package pod

import (
	"cmp"
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

// Variable returns the value of a variable in a container's environment; false if it is not set, or the container nil.
func Variable(c *corev1.Container, name string) (string, bool) {
	if c == nil {
		return "", false
	}
	for _, e := range c.Env {
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
