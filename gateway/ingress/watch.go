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

// resource is one kind of object that is followed, by an informer.
type resource struct {
	name     string // "ingresses.networking.k8s.io", as RBAC has it
	informer cache.SharedIndexInformer
	log      *slog.Logger

	mu      sync.Mutex // guards what follows
	problem string     // of the latest call; "" when it went well
	kind    string     // of problem
	said    time.Time  // when the log was told of that kind
}

// sayAgain is how often the same kind of problem is logged.
const sayAgain = 30 * time.Second

// objects is a client of one kind of object.
type objects[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow makes an informer of the objects that the selectors choose. client is what tells
// whether the server can stream its lists.
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
	// note has told of every call; what is left are streams that broke, which are taken up again.
	_ = r.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		r.log.Debug("watch", "error", err)
	})
	return r
}

// note takes the outcome of a call in, and tells of problems, each kind once in a while, and
// of their end.
func (r *resource) note(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the end; or a watch that was away for too long, and is begun anew
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		if r.problem != "" && verb == "watch" { // a list alone does not help for long
			r.log.Info("the API server answers again")
			r.problem, r.kind = "", ""
		}
		return
	}
	kind := "unreachable"
	var call *url.Error // its URL is long and says no more than verb and resource
	switch {
	case apierrors.IsForbidden(err):
		kind = "forbidden"
		r.problem = fmt.Sprintf("not allowed to %s %s: its role needs list and watch: %v", verb, r.name, err)
	case apierrors.IsUnauthorized(err):
		kind = "unauthorized"
		r.problem = fmt.Sprintf("the API server does not know us: %s %s: %v", verb, r.name, err)
	case errors.As(err, &call):
		r.problem = fmt.Sprintf("%s %s: the API server cannot be reached: %v", verb, r.name, call.Err)
	default:
		r.problem = fmt.Sprintf("%s %s: %v", verb, r.name, err)
	}
	if now := time.Now(); kind != r.kind || now.Sub(r.said) >= sayAgain {
		r.kind, r.said = kind, now
		message := "the cluster cannot be followed: what is known stays in force"
		if !r.informer.HasSynced() {
			message = "the cluster cannot be followed: nobody is served yet"
		}
		r.log.Error(message, "error", r.problem)
	}
}

// pending says what is awaited; "" when everything has come.
func (r *resource) pending() string {
	if r.informer.HasSynced() {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem != "" {
		return r.problem
	}
	return r.name + " have not been listed yet"
}

// each calls f with every change that follows the first list. before is nil for what is new, after for what is gone.
func each[T runtime.Object](r *resource, f func(before, after T)) error {
	var none T
	_, err := r.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, isFirst bool) {
			if !isFirst { // those are worked in together, by Run
				f(none, o.(T))
			}
		},
		UpdateFunc: func(a, b any) { f(a.(T), b.(T)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok { // it went while nobody watched
				o = gone.Obj
			}
			if t, ok := o.(T); ok {
				f(t, none)
			}
		},
	})
	return err
}

// all lists what is known.
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

// get finds one object; false when there is none.
func get[T any](r *resource, key string) (T, bool) {
	o, ok, err := r.informer.GetIndexer().GetByKey(key)
	if err != nil || !ok {
		var none T
		return none, false
	}
	return o.(T), true
}
