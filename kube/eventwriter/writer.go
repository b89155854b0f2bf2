// Package eventwriter creates Kubernetes Events. It repeats unanswered requests, and bounds the queue.
package eventwriter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// MaxMessage is the API server's limit for an Event's message, in bytes.
const MaxMessage = 1024

const (
	timeout  = 10 * time.Second // of an attempt, and of the queue at the end
	attempts = 6                // the last one about 10 s after the first
	creators = 2                // goroutines
)

// Writer creates Events. It is idle until Run.
type Writer struct {
	Made *prometheus.CounterVec // Events by result: created, exists, refused, dropped

	create  func(context.Context, *corev1.Event) error
	log     *slog.Logger
	queue   workqueue.TypedRateLimitingInterface[*corev1.Event]
	most    int64
	waiting atomic.Int64
}

// New returns a writer that calls create for each attempt. Beyond most Events that wait, further ones are dropped. The
// metric of this name is registered in r.
func New(
	create func(context.Context, *corev1.Event) error, most int64, metric string,
	r prometheus.Registerer, log *slog.Logger,
) *Writer {
	w := &Writer{
		Made: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metric, Help: "Kubernetes Events of terminations, by result (created, exists, refused, dropped).",
		}, []string{"result"}),
		create: create, log: log, most: most,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[*corev1.Event](300*time.Millisecond, timeout)),
	}
	r.MustRegister(w.Made)
	return w
}

// Add has an Event created soon. It returns false if too many wait.
func (w *Writer) Add(e *corev1.Event) bool {
	if w.waiting.Add(1) > w.most {
		w.waiting.Add(-1)
		w.Made.WithLabelValues("dropped").Inc()
		return false
	}
	w.queue.Add(e)
	return true
}

// Run creates Events until ctx ends, and then for 10 s at most those that wait for their first attempt.
func (w *Writer) Run(ctx context.Context) {
	until, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var creating sync.WaitGroup
	for range creators {
		creating.Go(func() {
			for w.next(until) {
			}
		})
	}
	<-ctx.Done()
	defer time.AfterFunc(timeout, cancel).Stop()
	w.queue.ShutDown()
	creating.Wait()
}

// next creates one Event; false when the queue is shut down.
func (w *Writer) next(ctx context.Context) bool {
	e, down := w.queue.Get()
	if down {
		return false
	}
	defer w.queue.Done(e)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.create(ctx, e)
	result, isLast := "created", w.queue.NumRequeues(e) >= attempts-1
	switch {
	case err == nil:
	case apierrors.IsAlreadyExists(err): // by another replica, or before a restart
		result = "exists"
	case isFinal(err), isLast && apierrors.IsForbidden(err):
		result = "refused"
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			w.log.Warn("API server refused an event", "namespace", e.Namespace, "object", e.InvolvedObject.Name, "error", err)
		}
	case !isLast:
		w.queue.AddRateLimited(e)
		return true
	default:
		result = "dropped"
		w.log.Warn("cannot create an event", "namespace", e.Namespace, "object", e.InvolvedObject.Name, "error", err)
	}
	w.Made.WithLabelValues(result).Inc()
	w.queue.Forget(e)
	w.waiting.Add(-1)
	return true
}

// isFinal reports whether a retry is useless. A forbidden request may soon be allowed (RBAC is installed after the
// pod), unless the namespace is being deleted.
func isFinal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || errors.Is(err, context.Canceled) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
