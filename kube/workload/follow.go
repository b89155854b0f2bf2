package workload

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Follow calls set with each state of the workload's pods, one at a time, until end is called or ctx ends; gone: the
// pod was deleted. It returns when set has got all pods that exist, or the first error of the API server. A later error
// is retried. Read comes first.
func (w *Workload) Follow(ctx context.Context, c Clients, set func(p *corev1.Pod, gone bool)) (end func(), err error) {
	pods := c.Core.Pods(w.Namespace)
	forward := func(object any, gone bool) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok { // after an interrupted watch
			object = last.Obj
		}
		if p, ok := object.(*corev1.Pod); ok {
			set(p, gone)
		}
	}
	informer := cache.NewSharedInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, w.Select(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, w.Select(o))
		},
	}, c.Core), &corev1.Pod{}, 0)
	failed := make(chan error, 1)
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		select {
		case failed <- err:
		default: // not the first
		}
	}); err != nil {
		return nil, err
	}
	handlers, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { forward(o, false) },
		UpdateFunc: func(_, o any) { forward(o, false) },
		DeleteFunc: func(o any) { forward(o, true) },
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	end = func() { stop(); running.Wait() }
	synced := make(chan struct{})
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), handlers.HasSynced) {
			close(synced)
		}
	})
	select {
	case <-synced:
		return end, nil
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	end()
	return nil, w.Explain(err, "watch the pods of", "list and watch on pods")
}
