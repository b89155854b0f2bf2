package workload

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Source lists and watches objects, as the typed clients do.
type Source[List runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (List, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Follow calls set with each state of the selected objects, one at a time, until end is called or ctx ends; gone: the
// object was deleted. It returns when set has got all objects that exist, or the first error of the API server. A later
// error is retried. example is an object of the kind, client the one that source is of.
func Follow[List runtime.Object](ctx context.Context, client any, source Source[List], choose func(metav1.ListOptions) metav1.ListOptions, example runtime.Object, set func(object any, gone bool)) (end func(), err error) {
	forward := func(object any, gone bool) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok { // after an interrupted watch
			object = last.Obj
		}
		set(object, gone)
	}
	informer := cache.NewSharedInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return source.List(ctx, choose(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return source.Watch(ctx, choose(o))
		},
	}, client), example, 0)
	var refused error
	var once sync.Once
	failed := make(chan struct{})
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		once.Do(func() { refused = err; close(failed) })
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
	case <-failed:
		err = refused
	case <-ctx.Done():
		err = ctx.Err()
	}
	end()
	return nil, err
}
