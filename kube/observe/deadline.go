package observe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

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

// leastGrace is the least that the kubelet gives (calculateEffectiveGracePeriod in its pod workers).
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
