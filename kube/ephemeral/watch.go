package ephemeral

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
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

// watchPods follows the workload's pods until ctx ends. The returned function waits for its end.
func watchPods(ctx context.Context, c Clients, w *Workload) (*sightings, func(), error) {
	s := &sightings{all: map[types.UID]*sighting{}}
	set := func(object any, isGone bool) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok { // after an interrupted watch
			object = last.Obj
		}
		if p, ok := object.(*corev1.Pod); ok {
			s.set(p, isGone)
		}
	}
	informer := cache.NewSharedInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.fields
			return c.Core.Pods(w.Namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.fields
			return c.Core.Pods(w.Namespace).Watch(ctx, o)
		},
	}, c.Core), &corev1.Pod{}, 0)
	var refused error
	var once sync.Once
	failed := make(chan struct{})
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		once.Do(func() { refused = err; close(failed) })
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(o, false) },
		UpdateFunc: func(_, o any) { set(o, false) },
		DeleteFunc: func(o any) { set(o, true) },
	}); err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	end := func() { stop(); running.Wait() }
	synced := make(chan struct{})
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			close(synced)
		}
	})
	select {
	case <-synced:
		return s, end, nil
	case <-failed: // a later failure is retried: the terminations are read from logs
		end()
		return nil, nil, w.explain(refused, "watch the pods of", "list and watch on pods")
	case <-ctx.Done():
		end()
		return nil, nil, ctx.Err()
	}
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

// await waits until done reports true for a pod, or the pod is gone, and returns the last sighting. It returns early when
// ctx ends.
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
