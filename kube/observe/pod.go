package observe

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Pod is the part of a pod that the observer keeps: a few hundred bytes of the 10 to 30 KB that the API server sends.
type Pod struct {
	Key
	Name        string
	UID         types.UID
	Owner       *metav1.OwnerReference // nil for a pod without a controller
	HostNetwork bool
	Grace       time.Duration // terminationGracePeriodSeconds

	// Deleted is when the API server accepted the deletion, in whole seconds; zero before. DeletionGrace is the grace
	// period of the deletion: kubectl delete --grace-period and an eviction can shorten it.
	Deleted       time.Time
	DeletionGrace time.Duration

	// Ended is true when the kubelet ends the pod by itself: eviction under pressure, or IsShutdown: of the node.
	Ended, IsShutdown bool

	IsEvicted bool // the eviction API has deleted it

	Agent pod.Agent // lastcall's, without a token in other pods

	Containers []Container
	Known      observe.Options // of its traffic

	HasPorts bool // an app declares ports, or a readiness probe that connects to one
}

// Container is a container of a pod, native sidecars included.
type Container struct {
	Name      string
	ID        string // without the runtime's prefix; empty before its start
	IsProxy   bool   // carries the traffic of the others
	IsRunning bool
	Restarts  int32
	Exit      *pod.End     // nil while it runs
	Report    *AgentReport // of lastcall's sidecar or hook, when it has ended and left one
}

// podOf copies the fields of a pod that the observer needs.
func podOf(p *corev1.Pod) Pod {
	out := Pod{
		Key:  Key{Namespace: p.Namespace, Workload: pod.WorkloadOf(&p.ObjectMeta), Proxy: pod.CarrierOf(p)},
		Name: strings.Clone(p.Name), UID: p.UID, HostNetwork: p.Spec.HostNetwork, Agent: pod.AgentOf(p),
	}
	out.Agent.Token = strings.Clone(out.Agent.Token)
	if owner := metav1.GetControllerOf(p); owner != nil {
		out.Owner = &metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
	}
	out.Grace = pod.GraceOf(&p.Spec)
	if p.DeletionTimestamp != nil {
		out.Deleted, out.DeletionGrace = pod.Deletion(p)
	}
	for i := range p.Status.Conditions {
		out.disruption(&p.Status.Conditions[i])
	}
	advice.Know(&out.Known, &p.Spec, out.Proxy)
	out.HasPorts = slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		r := c.ReadinessProbe
		hasProbe := r != nil && (r.HTTPGet != nil || r.TCPSocket != nil || r.GRPC != nil)
		return !pod.IsProxy(&p.Spec, &c) && (len(c.Ports) > 0 || hasProbe)
	})
	for _, s := range pod.Statuses(p) {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		c := Container{Name: s.Name, ID: id, Restarts: s.RestartCount, Exit: pod.EndOf(&s),
			IsRunning: s.State.Running != nil, IsProxy: pod.IsProxy(&p.Spec, pod.Find(&p.Spec, s.Name))}
		if end := s.State.Terminated; end != nil && pod.HasLastcall(out.Proxy) {
			if c.Report = reportOf(end.Message); c.Report != nil {
				c.Report.IsSidecar = pod.IsAgent(p, s.Name)
			}
		}
		out.Containers = append(out.Containers, c)
	}
	return out
}

// appEnd is the last of exits that is not a proxy's or the sandbox's; without one, the last of all.
func (p *Pod) appEnd(exits map[string]time.Duration) (last time.Duration) {
	for _, c := range p.Containers {
		if !c.IsProxy {
			last = max(last, exits[c.ID])
		}
	}
	if last == 0 {
		for _, after := range exits {
			last = max(last, after)
		}
	}
	return last
}

// hasEnded reports whether no container runs or will run.
func (p *Pod) hasEnded() bool {
	return len(p.Containers) > 0 && !slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Exit == nil })
}

// isTerminating reports whether the pod is to end.
func (p *Pod) isTerminating() bool { return !p.Deleted.IsZero() || p.Ended }

// deadline is when the kubelet sends SIGKILL, zero if it is unknown. The kubelet counts from its own receipt of the
// deletion, which is about when the observer receives it; after a late start, the API server's time is closer.
func (p *Pod) deadline(began time.Time) time.Time {
	switch {
	case p.Deleted.IsZero():
		return time.Time{}
	case began.Sub(p.Deleted) > lateAfter:
		return p.Deleted.Add(p.DeletionGrace)
	}
	return began.Add(p.DeletionGrace)
}

// earliest is when SIGTERM may have been sent at the earliest, if the observer learned of the termination at began.
func (p *Pod) earliest(began time.Time) time.Time {
	if p.Deleted.IsZero() || began.Sub(p.Deleted) > lateAfter {
		return began.Add(-2 * newsPatience)
	}
	return p.Deleted
}

// limit is when the observer no longer waits for the end of the pod.
func (p *Pod) limit(began time.Time) time.Time {
	if at := p.deadline(began); at.After(began) {
		return at.Add(endPatience)
	}
	return began.Add(p.Grace + endPatience)
}

// hasStarted reports whether a container has started.
func (p *Pod) hasStarted() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return c.ID != "" })
}

// The sources of a SIGKILL before the end of the pod's grace period: the label from of
// lastcall_observer_deadlines_total, and deadline_from in reports.
const (
	FromDelete   = "delete"        // kubectl delete --grace-period, or another client's deletion with one
	FromEviction = "eviction"      // an eviction with a grace period
	FromShutdown = "node-shutdown" // the kubelet's graceful shutdown of the node
)

// Deadline is when SIGKILL comes; the zero value is unknown.
type Deadline struct {
	At   time.Time
	From string
}

// earlier returns the earlier of two deadlines; an unknown one is never.
func earlier(a, b Deadline) Deadline {
	if a.At.IsZero() || !b.At.IsZero() && b.At.Before(a.At) {
		return b
	}
	return a
}

// leastGrace is the least that the kubelet gives a pod (calculateEffectiveGracePeriod in its pod workers);
// drain.LeastGrace is the least that it gives a container after its hook.
const leastGrace = time.Second

// The texts by which the kubelet and the eviction API say why a pod ends, in its condition DisruptionTarget.
const (
	messageShutdown = "Pod was terminated in response to imminent node shutdown." // kubelet, nodeshutdown manager
	reasonEviction  = "EvictionByEvictionAPI"                                     // API server, pod eviction
)

// disruption reads the condition of a pod that ends for another reason than its owner's will.
func (p *Pod) disruption(c *corev1.PodCondition) {
	if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
		return
	}
	p.Ended = p.Ended || c.Reason == corev1.PodReasonTerminationByKubelet
	p.IsShutdown = p.IsShutdown || c.Reason == corev1.PodReasonTerminationByKubelet && c.Message == messageShutdown
	p.IsEvicted = p.IsEvicted || c.Reason == reasonEviction
}

// sooner is the deadline of a pod that ends before its own grace period does. since is when the kubelet received that:
// about when the observer did. shutdown is the kubelet's grace period for a shutdown of the node, 0 if unknown.
func (p *Pod) sooner(since time.Time, shutdown time.Duration) Deadline {
	switch {
	case !p.Deleted.IsZero() && p.DeletionGrace < p.Grace:
		from := FromDelete
		if p.IsEvicted {
			from = FromEviction
		}
		return Deadline{since.Add(max(p.DeletionGrace, leastGrace)), from}
	case p.IsShutdown && shutdown > 0 && shutdown < p.Grace:
		return Deadline{since.Add(max(shutdown, leastGrace)), FromShutdown}
	}
	return Deadline{}
}
