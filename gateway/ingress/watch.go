package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// resource is one kind of object, watched by an informer.
type resource struct {
	name     string // as in RBAC rules: "ingresses.networking.k8s.io"
	informer cache.SharedIndexInformer
	log      *slog.Logger

	mu      sync.Mutex // guards what follows
	problem string     // of the latest call; "" if it succeeded
	kind    string     // of problem
	logged  time.Time  // when that kind was logged last
}

// logAgain is how often the same kind of problem is logged.
const logAgain = 30 * time.Second

// objects is a client of one kind of object.
type objects[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow makes an informer of the objects that the selectors match. From client, the informer learns whether the server
// can stream its lists.
func follow[L runtime.Object](name string, of objects[L], example runtime.Object, client any, fields, labels string, indexers cache.Indexers, log *slog.Logger) *resource {
	r := &resource{name: name, log: log.With("resource", name)}
	choose := func(o *metav1.ListOptions) { o.FieldSelector, o.LabelSelector = fields, labels }
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			choose(&o)
			list, err := of.List(ctx, o)
			r.note(ctx, "list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			choose(&o)
			w, err := of.Watch(ctx, o)
			r.note(ctx, "watch", err)
			return w, err
		},
	}, client)
	r.informer = cache.NewSharedIndexInformerWithOptions(lw, example, cache.SharedIndexInformerOptions{ObjectDescription: name, Indexers: indexers})
	// note logs failed calls. Other errors are of broken streams, which the informer resumes.
	_ = r.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		r.log.Debug("watch", "error", err)
	})
	return r
}

// note records the result of a call. It logs problems, each kind every logAgain, and their end.
func (r *resource) note(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the end of Run; or a watch that is too old to resume, which the informer restarts
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		if r.problem != "" && verb == "watch" { // a list that succeeds is not enough: the watch may still fail
			r.log.Info("API server reachable again")
			r.problem, r.kind = "", ""
		}
		return
	}
	kind := "unreachable"
	var call *url.Error // its URL is long and adds nothing to verb and resource
	switch {
	case apierrors.IsForbidden(err):
		kind = "forbidden"
		r.problem = fmt.Sprintf("not allowed to %s %s: the gateway's role needs list and watch: %v", verb, r.name, err)
	case apierrors.IsUnauthorized(err):
		kind = "unauthorized"
		r.problem = fmt.Sprintf("unauthorized at the API server: %s %s: %v", verb, r.name, err)
	case errors.As(err, &call):
		r.problem = fmt.Sprintf("%s %s: API server unreachable: %v", verb, r.name, call.Err)
	default:
		r.problem = fmt.Sprintf("%s %s: %v", verb, r.name, err)
	}
	if now := time.Now(); kind != r.kind || now.Sub(r.logged) >= logAgain {
		r.kind, r.logged = kind, now
		message := "cannot watch the cluster; keeping the last known state"
		if !r.informer.HasSynced() {
			message = "cannot watch the cluster; not serving yet"
		}
		r.log.Error(message, "error", r.problem)
	}
}

// pending describes why the resource has not been listed yet; "" if it has.
func (r *resource) pending() string {
	if r.informer.HasSynced() {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem != "" {
		return r.problem
	}
	return r.name + " not listed yet"
}

// each calls f with every change after the first list. before is nil for a new object, after for a deleted one.
func each[T runtime.Object](r *resource, f func(before, after T)) error {
	var none T
	_, err := r.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, isFirst bool) {
			if !isFirst { // Run applies the first list as a whole
				f(none, o.(T))
			}
		},
		UpdateFunc: func(a, b any) { f(a.(T), b.(T)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok { // deleted while the watch was down
				o = gone.Obj
			}
			if t, ok := o.(T); ok {
				f(t, none)
			}
		},
	})
	return err
}

// all lists the known objects.
func all[T any](r *resource) []T {
	if r == nil {
		return nil
	}
	list := r.informer.GetIndexer().List()
	out := make([]T, 0, len(list))
	for _, o := range list {
		out = append(out, o.(T))
	}
	return out
}

// get returns an object by its key, and whether it exists.
func get[T any](r *resource, key string) (T, bool) {
	o, ok, err := r.informer.GetIndexer().GetByKey(key)
	if err != nil || !ok {
		var none T
		return none, false
	}
	return o.(T), true
}
