package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Client returns a client that knows the core API group alone: the clients of all groups would take 10 MB on each node.
func Client(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS, config.Burst = 20, 50
	config.UserAgent = "lastcall-observer"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for the API server: %w", err)
	}
	return client, nil
}

// PodsOf lists and watches the pods of a node.
func PodsOf(client rest.Interface, node string) cache.ListerWatcher {
	ofNode := fields.OneTermEqualSelector("spec.nodeName", node)
	return cache.NewListWatchFromClient(client, "pods", metav1.NamespaceAll, ofNode)
}

// inbox is the reflector's store. It hands the node's pods to the observer, one call at a time, and keeps nothing.
type inbox struct {
	*Observer
	ctx context.Context
}

func (i inbox) Add(object any) error { return i.Update(object) }
func (i inbox) Resync() error        { return nil }

func (i inbox) Update(object any) error {
	if pod, ok := object.(*corev1.Pod); ok {
		i.seen(i.ctx, podOf(pod))
	}
	return nil
}

func (i inbox) Delete(object any) error {
	if pod, ok := object.(*corev1.Pod); ok {
		i.seen(i.ctx, podOf(pod)) // its last state has the exit codes
		i.gone(i.ctx, pod.UID)
	}
	return nil
}

// Replace takes a new list of all pods.
func (i inbox) Replace(list []any, _ string) error {
	missing := map[types.UID]bool{}
	i.mu.Lock()
	for uid := range i.tracked {
		missing[uid] = true
	}
	i.mu.Unlock()
	for _, object := range list {
		if pod, ok := object.(*corev1.Pod); ok {
			delete(missing, pod.UID)
			i.seen(i.ctx, podOf(pod))
		}
	}
	for uid := range missing {
		i.gone(i.ctx, uid)
	}
	return nil
}

// watchPods runs until ctx ends. After an error the watch is repeated at growing intervals of up to 30 s.
func (o *Observer) watchPods(ctx context.Context) {
	// The reflector's own log has no bound.
	options := cache.ReflectorOptions{Name: "pods", Logger: &klog.Logger{}}
	cache.NewReflectorWithOptions(&requests{o.Pods, o.answered}, &corev1.Pod{}, inbox{o, ctx}, options).RunWithContext(ctx)
}

// requests reports the result of each request.
type requests struct {
	cache.ListerWatcher
	answered func(error)
}

func (r *requests) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := cache.ToListerWatcherWithContext(r.ListerWatcher).ListWithContext(ctx, o)
	r.answered(err)
	return list, err
}

func (r *requests) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	changes, err := cache.ToListerWatcherWithContext(r.ListerWatcher).WatchWithContext(ctx, o)
	r.answered(err)
	return changes, err
}

// IsWatchListSemanticsUnSupported is client-go's question whether a list can be streamed.
func (r *requests) IsWatchListSemanticsUnSupported() bool {
	u, ok := r.ListerWatcher.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && u.IsWatchListSemanticsUnSupported()
}
