package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"k8s.io/client-go/informers"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// Limits for the creation of Events.
const (
	createTimeout = 10 * time.Second
	attempts      = 6    // the last one about 10 s after the first
	maxCreated    = 4096 // Events remembered as created
	remembered    = 24 * time.Hour
	maxPending    = 8192 // waiting Events; further ones are counted and dropped
	creators      = 2    // goroutines
)

// Controller watches pods and creates their Events. It needs list and watch on pods and list and create on events, in
// all namespaces.
type Controller struct {
	client kubernetes.Interface
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[string]
	made   *prometheus.CounterVec
	apps   *Apps

	mu      sync.Mutex // guards what follows
	pending map[string]*corev1.Event
	created *lru.LRUExpireCache
}

// Client returns the client for New. Its rate limit suffices for the rollout of a large Deployment, which has many
// terminations at once.
func Client(config *rest.Config) (kubernetes.Interface, error) {
	config, client, err := workload.HTTPClient(config, 0)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfigAndClient(config, client)
}

// New returns a controller that is idle until Run. Its metrics are registered in r.
func New(client kubernetes.Interface, r prometheus.Registerer, log *slog.Logger) *Controller {
	c := &Controller{
		client: client, log: log, apps: newApps(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](300*time.Millisecond, 10*time.Second)),
		made: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lastcall_events_total", Help: "Kubernetes Events of terminations, by result (created, exists, refused, dropped).",
		}, []string{"result"}),
		pending: map[string]*corev1.Event{}, created: lru.NewLRUExpireCache(maxCreated),
	}
	r.MustRegister(c.made)
	return c
}

// Run watches until ctx ends, and then waits for the Events in progress. It returns nil; errors of the API server are
// logged, and the request is repeated.
func (c *Controller) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0,
		informers.WithTransform(Trim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = labels.Set{inject.LabelInjected: inject.LabelInjectedValue}.String()
		}))
	informer := factory.Core().V1().Pods().Informer()
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) {
			c.log.Warn("cannot watch pods; creating no events until it works", "error", err)
		}
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.seen,
		UpdateFunc: func(_, now any) { c.seen(now) },
		DeleteFunc: c.seen,
	}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if err := c.recall(ctx); err != nil && ctx.Err() == nil {
		c.log.Warn("cannot read what earlier terminations have shown of apps", "error", err)
	}
	factory.StartWithContext(ctx)
	var creating sync.WaitGroup
	for range creators {
		creating.Go(func() {
			for c.next(context.WithoutCancel(ctx)) {
			}
		})
	}
	<-ctx.Done()
	factory.Shutdown()
	c.queue.ShutDown() // queued Events are still created; those that wait for a retry are not
	creating.Wait()
	return nil
}

// seen processes a pod's state: added, changed, or the last one.
func (c *Controller) seen(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok { // after an interrupted watch
		object = gone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	for _, e := range eventsOf(pod, time.Now()) {
		c.add(e)
	}
}

// Apps is what terminations have shown of workloads' apps.
func (c *Controller) Apps() *Apps { return c.apps }

func (c *Controller) add(e *corev1.Event) {
	c.apps.learn(e)
	key := e.Namespace + "/" + e.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	_, isCreated := c.created.Get(key)
	switch {
	case isCreated || c.pending[key] != nil:
		return
	case len(c.pending) >= maxPending:
		c.made.WithLabelValues("dropped").Inc()
		return
	}
	c.pending[key] = e
	c.queue.Add(key)
}

// next creates one Event; false when the queue is shut down.
func (c *Controller) next(ctx context.Context) bool {
	key, down := c.queue.Get()
	if down {
		return false
	}
	defer c.queue.Done(key)
	c.mu.Lock()
	e := c.pending[key]
	c.mu.Unlock()
	if e == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	_, err := c.client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	result := "created"
	switch {
	case err == nil:
	case apierrors.IsAlreadyExists(err): // by another replica, or before a restart
		result = "exists"
	case isFinal(err):
		result = "refused"
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			c.log.Warn("API server refused an event", "namespace", e.Namespace, "pod", e.InvolvedObject.Name, "error", err)
		}
	case c.queue.NumRequeues(key) < attempts-1:
		c.queue.AddRateLimited(key)
		return true
	default:
		result = "dropped"
		c.log.Warn("cannot create an event", "namespace", e.Namespace, "pod", e.InvolvedObject.Name, "error", err)
	}
	c.made.WithLabelValues(result).Inc()
	c.queue.Forget(key)
	c.remember(key)
	return true
}

// isFinal reports whether a retry is useless. A forbidden request may soon be allowed (RBAC is installed after the
// pod), unless the namespace is being deleted.
func isFinal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || errors.Is(err, context.Canceled)
}

func (c *Controller) remember(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, key)
	c.created.Add(key, nil, remembered)
}
