package events

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lastcall-dev/lastcall/kube/inject"
)

// ReasonNotInjected is the reason of Events about pods that should have lastcall but do not.
const ReasonNotInjected = "NotInjected"

const notInjected = "has no lastcall, although injection is enabled: no webhook answered when the pod was created, or injection was enabled later; " +
	"a new pod gets it (kubectl rollout restart)"

// Limits of the search for missed pods.
const (
	missedPage   = 500              // pods of a list in memory at once
	missedAgain  = 10 * time.Minute // interval of a full search: namespaces' labels change
	missedAtMost = 20_000           // pods that are counted
	missedRate   = 2                // Events a second
	missedBurst  = 100
	missedWarn   = time.Minute // between two warnings in the log
)

// A Selection describes the pods that one webhook of the configuration injects into.
type Selection struct {
	Namespace, Object labels.Selector
	ByDefault         bool // for pods without a label
}

// Missed finds pods that a webhook should have injected but did not: pods start without it while it does not answer
// (failurePolicy Ignore).
type Missed struct {
	// Pods reads only metadata. It needs list and watch on pods in all namespaces.
	Pods metadata.Getter

	// Selections returns those of the registered webhooks; none without a configuration.
	Selections func(ctx context.Context) ([]Selection, error)

	Namespace func(ctx context.Context, name string) (inject.Namespace, error)
}

// finder runs Missed. Its pods are those of one list and the following watch.
type finder struct {
	Missed
	c          *Controller
	count      prometheus.Gauge
	rate       flowcontrol.RateLimiter
	selections []Selection
	pods       map[types.UID]bool
	complained time.Time
}

// Find makes the controller look for missed pods, too. It is called before Run.
func (c *Controller) Find(m Missed, r prometheus.Registerer) {
	c.missed = &finder{Missed: m, c: c, rate: flowcontrol.NewTokenBucketRateLimiter(missedRate, missedBurst), count: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lastcall_pods_not_injected", Help: fmt.Sprintf("Pods without lastcall that ask for it, by themselves or by their namespace; at most %d.", missedAtMost),
	})}
	r.MustRegister(c.missed.count)
}

// run searches until ctx ends.
func (f *finder) run(ctx context.Context) {
	pause := time.Second
	for ctx.Err() == nil {
		err := f.follow(ctx)
		switch {
		case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			pause = time.Second
		case ctx.Err() == nil && time.Since(f.complained) > missedWarn:
			f.complained = time.Now()
			f.c.log.Warn("cannot search for pods that were not injected", "error", err)
			pause = min(2*pause, time.Minute)
		default:
			pause = min(2*pause, time.Minute)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// follow lists all pods and then watches them. It returns after missedAgain, or on an error.
func (f *finder) follow(ctx context.Context) error {
	pods := f.Pods.Namespace(metav1.NamespaceAll)
	options := metav1.ListOptions{LabelSelector: inject.LabelInjected + "!=" + inject.LabelInjectedValue, Limit: missedPage}
	var err error
	if f.selections, err = f.Selections(ctx); err != nil {
		return fmt.Errorf("read the webhook's configuration: %w", err)
	}
	f.pods = map[types.UID]bool{}
	for {
		list, err := pods.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		for i := range list.Items {
			f.look(ctx, &list.Items[i])
		}
		options.ResourceVersion, options.Continue = list.ResourceVersion, list.Continue
		if list.Continue == "" {
			break
		}
		options.ResourceVersion = "" // the continuation contains it
	}
	f.count.Set(float64(len(f.pods)))
	options.Limit, options.Continue = 0, ""
	seconds := int64(missedAgain / time.Second)
	options.TimeoutSeconds = &seconds
	watching, cancel := context.WithTimeout(ctx, missedAgain+time.Minute)
	defer cancel()
	w, err := pods.Watch(watching, options)
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-watching.Done():
			return nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			pod, ok := e.Object.(*metav1.PartialObjectMetadata)
			switch {
			case !ok:
			case e.Type == watch.Added:
				f.look(ctx, pod)
			case e.Type == watch.Deleted:
				delete(f.pods, pod.UID)
			}
			f.count.Set(float64(len(f.pods)))
		}
	}
}

// look counts a pod that was missed. Only young pods get an Event: others may be older than the installation of
// lastcall.
func (f *finder) look(ctx context.Context, pod *metav1.PartialObjectMetadata) {
	if f.pods[pod.UID] || len(f.pods) >= missedAtMost || !f.isMissed(ctx, pod) {
		return
	}
	f.pods[pod.UID] = true
	now := time.Now()
	if now.Sub(pod.CreationTimestamp.Time) > Fresh {
		return
	}
	if !f.rate.TryAccept() {
		f.c.made.WithLabelValues("dropped").Inc()
		return
	}
	f.c.add(missedEvent(pod, now))
}

func (f *finder) isMissed(ctx context.Context, pod *metav1.PartialObjectMetadata) bool {
	var namespace *inject.Namespace
	for _, s := range f.selections {
		if !s.Object.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if namespace == nil {
			n, err := f.Namespace(ctx, pod.Namespace)
			if err != nil {
				return false // it will be examined again
			}
			namespace = &n
		}
		if !s.Namespace.Matches(labels.Set(namespace.Labels)) {
			continue
		}
		if inject.IsMissed(&pod.ObjectMeta, inject.Options{ByDefault: s.ByDefault, Namespace: *namespace}) {
			return true
		}
	}
	return false
}

func missedEvent(pod *metav1.PartialObjectMetadata, now time.Time) *corev1.Event {
	e := eventAbout(&pod.ObjectMeta, ReasonNotInjected, 0, now)
	e.Type, e.Reason, e.Message, e.Action = corev1.EventTypeWarning, ReasonNotInjected, notInjected, "Creating"
	return e
}
