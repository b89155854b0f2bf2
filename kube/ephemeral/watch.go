package ephemeral

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sighting is the last state of a pod that the API server has sent.
type sighting struct {
	pod     *corev1.Pod
	isGone  bool          // deleted; pod is its last state
	changed chan struct{} // closed at the next change
}

// sightings are the states of the workload's pods, by UID.
type sightings struct {
	mu  sync.Mutex
	all map[types.UID]*sighting
}

func (s *sightings) set(p *corev1.Pod, isGone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.all[p.UID]; was != nil {
		close(was.changed)
	}
	s.all[p.UID] = &sighting{pod: p, isGone: isGone, changed: make(chan struct{})}
}

// of is the last sighting of a pod, which is p itself before the first.
func (s *sightings) of(p *corev1.Pod) *sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[p.UID] == nil {
		s.all[p.UID] = &sighting{pod: p, changed: make(chan struct{})}
	}
	return s.all[p.UID]
}

// await waits until done reports true for a pod, or the pod is gone, and returns the last sighting. It returns early
// when ctx ends.
func (s *sightings) await(ctx context.Context, p *corev1.Pod, done func(*corev1.Pod) bool) *sighting {
	for {
		now := s.of(p)
		if now.isGone || done(now.pod) {
			return now
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return now
		}
	}
}
