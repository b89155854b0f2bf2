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
	return cache.NewListWatchFromClient(client, "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node))
}

// sink receives the state of the node's pods, one call at a time.
type sink interface {
	// seen receives a pod that was created or has changed.
	seen(Pod)
	// gone receives a pod that the API server no longer has.
	gone(types.UID)
	// complete receives the UIDs of all pods after a new list.
	complete(map[types.UID]bool)
}

// store is what a reflector fills. It keeps nothing: the observer keeps what it needs.
type store struct{ to sink }

func (s store) Add(object any) error    { return s.put(object) }
func (s store) Update(object any) error { return s.put(object) }
func (s store) Resync() error           { return nil }

func (s store) put(object any) error {
	if pod, ok := object.(*corev1.Pod); ok {
		s.to.seen(podOf(pod))
	}
	return nil
}

func (s store) Delete(object any) error {
	if pod, ok := object.(*corev1.Pod); ok {
		s.to.seen(podOf(pod)) // its last state has the exit codes
		s.to.gone(pod.UID)
	}
	return nil
}

func (s store) Replace(list []any, _ string) error {
	all := make(map[types.UID]bool, len(list))
	for _, object := range list {
		if pod, ok := object.(*corev1.Pod); ok {
			all[pod.UID] = true
			s.to.seen(podOf(pod))
		}
	}
	s.to.complete(all)
	return nil
}

// watchPods runs until ctx ends. answered receives the result of each request to the API server; after an error the
// watch is repeated at growing intervals of up to 30 s.
func watchPods(ctx context.Context, pods cache.ListerWatcher, to sink, answered func(error)) {
	// The reflector's own log has no bound.
	options := cache.ReflectorOptions{Name: "pods", Logger: &klog.Logger{}}
	cache.NewReflectorWithOptions(&requests{pods, answered}, &corev1.Pod{}, store{to}, options).RunWithContext(ctx)
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
