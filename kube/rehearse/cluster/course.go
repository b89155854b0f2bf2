package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// course is the life of one pod, by the times at which this machine received its changes. A zero time: not yet.
type course struct {
	pod   *corev1.Pod // as it was last reported
	isNew bool        // it was not there before the disruption

	created, ready, serving, deleted, unready, removed, ended, gone time.Time
}

// grace is the time from the pod's deletion to SIGKILL. The kubelet's own deletion of a pod that has ended sets it to 0.
func (c *course) grace() time.Duration {
	if s := c.pod.DeletionGracePeriodSeconds; s != nil && *s > 0 {
		return carrier.Seconds(*s)
	}
	return inject.GraceOf(&c.pod.Spec)
}

// sigkilled is the exit code of a process that SIGKILL ended (128 + 9).
const sigkilled = 137

// endedBy is how the pod's containers ended: "exit 0", or "app exit 0, proxy SIGKILL".
func (c *course) endedBy() string {
	var all []string
	for _, s := range c.pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil {
			text := fmt.Sprintf("exit %d", t.ExitCode)
			switch {
			case t.Reason == "OOMKilled":
				text = t.Reason
			case t.ExitCode == sigkilled:
				text = "SIGKILL"
			}
			if len(c.pod.Spec.Containers) > 1 {
				text = s.Name + " " + text
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

// killed reports whether SIGKILL ended a container at the end of the grace period. The kubelet's times are whole seconds.
func (c *course) killed() bool {
	return slices.ContainsFunc(c.pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		t := s.State.Terminated
		return t != nil && t.ExitCode == sigkilled && !c.deleted.IsZero() && t.FinishedAt.Sub(c.deleted) > c.grace()-2*time.Second
	})
}

// recorder follows pods and their endpoints.
type recorder struct {
	mu      sync.Mutex // guards what follows
	begun   bool       // the disruption
	courses map[types.UID]*course
	slices  map[string]map[types.UID]bool // by the name of an EndpointSlice: whether its endpoints are ready
}

func newRecorder() *recorder {
	return &recorder{courses: map[types.UID]*course{}, slices: map[string]map[types.UID]bool{}}
}

// begin marks the pods that exist as old.
func (r *recorder) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = true
}

// set records a state of a pod.
func (r *recorder) set(object any, gone bool) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.courses[p.UID]
	if c == nil {
		if len(r.courses) >= 4*maxPods {
			return
		}
		c = &course{isNew: r.begun, created: now}
		r.courses[p.UID] = c
	}
	c.pod = p
	if isReady(p) {
		mark(&c.ready, now)
	}
	if p.DeletionTimestamp != nil || gone {
		mark(&c.deleted, now)
	}
	if hasEnded(p) || gone {
		mark(&c.ended, now)
	}
	if gone {
		mark(&c.gone, now)
	}
}

// setSlice records a state of an EndpointSlice.
func (r *recorder) setSlice(object any, gone bool) {
	s, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	endpoints := map[types.UID]bool{}
	if !gone {
		for _, e := range s.Endpoints {
			if e.TargetRef != nil {
				endpoints[e.TargetRef.UID] = e.Conditions.Ready == nil || *e.Conditions.Ready
			}
		}
	}
	before := r.slices[s.Name]
	r.slices[s.Name] = endpoints
	for _, all := range []map[types.UID]bool{before, endpoints} {
		for uid := range all {
			if c := r.courses[uid]; c != nil {
				found, ready := r.endpoint(uid)
				c.listed(now, found, ready)
			}
		}
	}
}

// endpoint is whether any slice has a pod, and has it as ready.
func (r *recorder) endpoint(uid types.UID) (found, ready bool) {
	for _, all := range r.slices {
		if isReady, has := all[uid]; has {
			found, ready = true, ready || isReady
		}
	}
	return found, ready
}

// listed records whether the pod is an endpoint.
func (c *course) listed(now time.Time, found, ready bool) {
	switch {
	case ready:
		mark(&c.serving, now)
		if c.deleted.IsZero() { // not ready for a moment, and no end
			c.unready, c.removed = time.Time{}, time.Time{}
		}
		return
	case !c.serving.IsZero():
		mark(&c.unready, now)
	}
	if !found && !c.serving.IsZero() {
		mark(&c.removed, now)
	}
}

// all returns copies of the courses: old pods by the time of their deletion, then new ones.
func (r *recorder) all() []course {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []course
	for _, c := range r.courses {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b course) int {
		if a.isNew != b.isNew {
			return map[bool]int{false: -1, true: 1}[a.isNew]
		}
		return cmp.Or(a.deleted.Compare(b.deleted), a.ready.Compare(b.ready), strings.Compare(a.pod.Name, b.pod.Name))
	})
	return out
}

// mark sets a time once.
func mark(t *time.Time, now time.Time) {
	if t.IsZero() {
		*t = now
	}
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// hasEnded reports whether all containers of a pod that is being deleted have ended.
func hasEnded(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && len(p.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated == nil
	})
}
