package events

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/lastcall-dev/lastcall/kube/eventwriter"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// Limits for the creation of Events.
const (
	maxPending = 8192           // Events that wait, and that are remembered as created
	remembered = 24 * time.Hour // for so long
)

// Controller watches pods and creates their Events. It needs list and watch on pods and list and create on events, in
// all namespaces.
type Controller struct {
	client kubernetes.Interface
	log    *slog.Logger
	writer *eventwriter.Writer
	apps   *Apps
	added  *lru.LRUExpireCache // the names of Events
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
	create := func(ctx context.Context, e *corev1.Event) error {
		_, err := client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
		return err
	}
	return &Controller{
		client: client, log: log, apps: newApps(), added: lru.NewLRUExpireCache(maxPending),
		writer: eventwriter.New(create, maxPending, "lastcall_events_total", r, log),
	}
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
	seen, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	context.AfterFunc(ctx, func() {
		factory.Shutdown()
		stop()
	})
	c.writer.Run(seen)
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

// Apps has the findings of terminations about workloads' apps.
func (c *Controller) Apps() *Apps { return c.apps }

// add has an Event created, once. The informer calls it from one goroutine.
func (c *Controller) add(e *corev1.Event) {
	c.apps.learn(e)
	key := e.Namespace + "/" + e.Name
	if _, isKnown := c.added.Get(key); !isKnown && c.writer.Add(e) {
		c.added.Add(key, nil, remembered)
	}
}
