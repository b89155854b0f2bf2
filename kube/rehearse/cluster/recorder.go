package cluster

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

// recorder follows the ends of pods, by the times at which the API server's reports arrive.
type recorder struct {
	hook podend.Hook // of the pods' app

	mu   sync.Mutex // guards the fields below
	ends map[types.UID]*outcome.Ending
}

// set records a state of a pod.
func (r *recorder) set(p *corev1.Pod, gone bool) {
	if p.DeletionTimestamp == nil && !gone {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.ends[p.UID]
	if e == nil {
		e = &outcome.Ending{Name: p.Name, IsReported: true, Deleted: now}
		_, e.Grace = pod.Deletion(p)
		if r.hook.Kind == podend.NoHook || r.hook.IsKnown {
			e.Term = now.Add(r.hook.Duration)
		}
		r.ends[p.UID] = e
	}
	if e.Ended.IsZero() && (gone || pod.HasEnded(p)) {
		e.Ended = now
		e.EndedBy = endedBy(p)
		if len(pod.Killed(p, e.Deleted.Add(e.Grace-time.Second))) > 0 {
			e.Killed = now
		}
	}
	if gone {
		e.Gone = now
	}
}

// haveGone reports whether so many pods have gone, and none is ending.
func (r *recorder) haveGone(pods int) bool {
	all := r.endings()
	return len(all) >= pods && !slices.ContainsFunc(all, func(e outcome.Ending) bool { return e.Gone.IsZero() })
}

// endings returns the ends of pods, by the time of their deletion.
func (r *recorder) endings() (all []outcome.Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ends {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b outcome.Ending) int {
		return cmp.Or(a.Deleted.Compare(b.Deleted), strings.Compare(a.Name, b.Name))
	})
	return all
}

// endedBy is how the pod's containers ended: "exit 0", or "app exit 0, proxy SIGKILL".
func endedBy(p *corev1.Pod) string {
	var all []string
	for _, s := range p.Status.ContainerStatuses {
		end := pod.EndOf(&s)
		if end == nil {
			continue
		}
		text := end.String()
		if len(p.Spec.Containers) > 1 {
			text = s.Name + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
