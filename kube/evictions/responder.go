// Package evictions is a responder of Kubernetes' Eviction API (lifecycle.k8s.io/v1alpha1, KEP-4563; a prototype). It
// drains a pod with lastcall's sidecar before its deletion, so that no grace period limits the drain.
//
// A pod names the responder in spec.evictionResponders. When Kubernetes makes it active, the responder removes the
// labels by which Services select the pod, so its ReplicaSet creates a replacement. It then waits until the sidecar
// reports no request in flight, and reports progress in the Eviction's status. Kubernetes' own responder evicts the
// pod.
package evictions

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/kube/carrier"
)

const (
	// Name is the responder's in a pod's spec.evictionResponders.
	Name = "lastcall.dev/drain"

	// AnnotationReleased has, on a pod that the responder has taken out of its Services, the labels that it removed.
	AnnotationReleased = "lastcall.dev/released-labels"

	lookEvery      = 5 * time.Second
	heartbeatEvery = 30 * time.Second // the API asks for no more than one in 20 s, and for one in 20 minutes
	quietTime      = 15 * time.Second // without a request in flight; clients learn of the pod's removal within it
	callTimeout    = 10 * time.Second
	mostDrains     = 100     // that are looked at at a time
	mostMetrics    = 4 << 20 // bytes of a scrape
)

// Responder drains the pods of Evictions.
type Responder struct {
	client kubernetes.Interface
	http   *http.Client
	log    *slog.Logger
	noise  logs.Throttle       // of errors, which each look repeats
	tasks  map[types.UID]*task // by Eviction
}

// task is the responder's work for one Eviction.
type task struct {
	state                  lifecycle.ResponderStateType
	isDone                 bool      // nothing is left to do in this state
	began, heartbeat, idle time.Time // idle: since when
}

// New returns a responder that is idle until Run.
func New(client kubernetes.Interface, log *slog.Logger) *Responder {
	return &Responder{client: client, log: log, tasks: map[types.UID]*task{},
		http: &http.Client{Timeout: callTimeout, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Run watches Evictions until ctx ends. Another instance continues the work of this one: all of its state is in the
// API server.
func (r *Responder) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(r.client, 0)
	informer := factory.Lifecycle().V1alpha1().Evictions().Informer()
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) {
			r.log.Warn("cannot watch evictions; draining no pods for them until it works", "error", err)
		}
	}); err != nil {
		return fmt.Errorf("watch evictions: %w", err)
	}
	changed := make(chan struct{}, 1)
	wake := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, now any) { wake(now) }, DeleteFunc: wake,
	}); err != nil {
		return fmt.Errorf("watch evictions: %w", err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-changed:
			r.look(ctx, informer.GetStore().List(), false)
		case <-tick.C:
			r.look(ctx, informer.GetStore().List(), true)
		case <-ctx.Done():
			return nil
		}
	}
}

// look does the next step about each Eviction: all of them, or only those whose state is new.
func (r *Responder) look(ctx context.Context, evictions []any, all bool) {
	var steps errgroup.Group
	steps.SetLimit(mostDrains)
	before := r.tasks
	r.tasks = map[types.UID]*task{}
	for _, object := range evictions {
		e, ok := object.(*lifecycle.Eviction)
		if !ok {
			continue
		}
		t, state := before[e.UID], stateOf(e)
		isNew := t == nil || t.state != state
		if isNew {
			t = &task{state: state, began: time.Now()}
			i := own(e)
			t.isDone = state == lifecycle.ResponderStateActive && i >= 0 && e.Status.Responders[i].CompletionTime != nil
		}
		r.tasks[e.UID] = t
		step := map[lifecycle.ResponderStateType]func(context.Context, *lifecycle.Eviction, *task, *slog.Logger) error{
			lifecycle.ResponderStateActive: r.drain, lifecycle.ResponderStateCanceled: r.restore,
		}[state]
		if step == nil || t.isDone || !isNew && !all {
			continue
		}
		log := r.log.With("namespace", e.Namespace, "pod", e.Spec.Target.Pod.Name)
		steps.Go(func() error {
			if err := step(ctx, e, t, log); err != nil && ctx.Err() == nil {
				r.noise.Warn(log, heartbeatEvery,
					"cannot drain a pod before its eviction; Kubernetes evicts it when the heartbeat is missing", "error", err)
			}
			return nil
		})
	}
	_ = steps.Wait() // no step returns an error
}

// stateOf is the state that Kubernetes has given the responder; "" if the pod does not name it.
func stateOf(e *lifecycle.Eviction) lifecycle.ResponderStateType {
	i := slices.IndexFunc(e.Status.TargetResponders, func(t lifecycle.TargetResponder) bool { return t.Name == Name })
	if i < 0 || e.Spec.Target.Pod == nil {
		return ""
	}
	return e.Status.TargetResponders[i].State
}

// own is the index of the responder's part of the status; -1 if there is none.
func own(e *lifecycle.Eviction) int {
	return slices.IndexFunc(e.Status.Responders, func(s lifecycle.ResponderStatus) bool { return s.Name == Name })
}

// target returns the pod; nil if it has ended.
func (r *Responder) target(ctx context.Context, e *lifecycle.Eviction) (*corev1.Pod, error) {
	pod, err := r.client.CoreV1().Pods(e.Namespace).Get(ctx, e.Spec.Target.Pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the pod: %w", err)
	case pod.UID != e.Spec.Target.Pod.UID, pod.DeletionTimestamp != nil, carrier.HasEnded(pod):
		return nil, nil
	}
	return pod, nil
}

// drain takes the pod out of its Services, and looks whether requests are in flight in it.
func (r *Responder) drain(ctx context.Context, e *lifecycle.Eviction, t *task, log *slog.Logger) error {
	pod, err := r.target(ctx, e)
	if err != nil {
		return err
	}
	if why := unfit(pod); why != "" {
		return r.complete(ctx, e, t, why)
	}
	if pod.Annotations[AnnotationReleased] == "" {
		if err := r.release(ctx, pod); err != nil {
			return err
		}
		log.Info("draining a pod before its eviction")
	}
	busy, err := r.busy(ctx, pod)
	message := fmt.Sprintf("waiting for %d conversations", busy)
	switch {
	case err != nil:
		message, t.idle = fmt.Sprintf("cannot read what the pod waits for: %v", err), time.Time{}
	case busy > 0:
		t.idle = time.Time{}
	case t.idle.IsZero():
		t.idle = time.Now()
	case time.Since(t.idle) >= quietTime:
		took := time.Since(t.began).Round(time.Second)
		log.Info("drained a pod before its eviction", "after", took)
		return r.complete(ctx, e, t, fmt.Sprintf("drained in %v", took))
	}
	if time.Since(t.heartbeat) < heartbeatEvery {
		return nil
	}
	if err := r.report(ctx, e, false, message); err != nil {
		return err
	}
	t.heartbeat = time.Now()
	return nil
}

// complete reports that the responder has done its part.
func (r *Responder) complete(ctx context.Context, e *lifecycle.Eviction, t *task, message string) error {
	err := r.report(ctx, e, true, message)
	t.isDone = err == nil
	return err
}

// unfit is why a pod is left to Kubernetes' own eviction; "" if it is drained here.
func unfit(pod *corev1.Pod) string {
	if pod == nil {
		return "the pod has ended"
	}
	owner := metav1.GetControllerOf(pod)
	switch {
	case !carrier.IsOurs(pod):
		return "not drained before its deletion: it has no sidecar of lastcall"
	case owner != nil && owner.Kind != "ReplicaSet" && pod.Annotations[AnnotationReleased] == "":
		return "not drained before its deletion: a " + owner.Kind + " cannot replace it while it exists"
	}
	return ""
}

// release takes the pod out of the Services that select it, and so out of its ReplicaSet.
func (r *Responder) release(ctx context.Context, pod *corev1.Pod) error {
	services, err := r.client.CoreV1().Services(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the Services of the pod: %w", err)
	}
	removed, values := map[string]string{}, map[string]any{}
	for i := range services.Items {
		selector := services.Items[i].Spec.Selector
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			continue
		}
		for key := range selector {
			removed[key], values[key] = pod.Labels[key], nil
		}
	}
	text, err := json.Marshal(removed)
	if err != nil {
		return err
	}
	return r.patch(ctx, pod, values, string(text))
}

// restore gives a pod whose eviction has been cancelled its labels back.
func (r *Responder) restore(ctx context.Context, e *lifecycle.Eviction, t *task, log *slog.Logger) error {
	pod, err := r.target(ctx, e)
	if t.isDone = err == nil && (pod == nil || pod.Annotations[AnnotationReleased] == ""); err != nil || t.isDone {
		return err
	}
	var removed map[string]any
	if err := json.Unmarshal([]byte(pod.Annotations[AnnotationReleased]), &removed); err != nil {
		return fmt.Errorf("read the annotation %s of the pod: %w", AnnotationReleased, err)
	}
	log.Info("the eviction of a pod is cancelled: it gets its labels back")
	return r.patch(ctx, pod, removed, nil)
}

// patch sets labels of the pod and the annotation, each removed by nil.
func (r *Responder) patch(ctx context.Context, pod *corev1.Pod, values map[string]any, released any) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": values,
		"annotations": map[string]any{AnnotationReleased: released}}})
	if err != nil {
		return err
	}
	pods := r.client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Patch(ctx, pod.Name, types.MergePatchType, text, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change the labels of the pod: %w", err)
	}
	return nil
}

// busy is how many conversations the pod's sidecar waits for.
func (r *Responder) busy(ctx context.Context, pod *corev1.Pod) (int, error) {
	address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(carrier.AgentOf(pod).Port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := r.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("scrape the sidecar: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, mostMetrics))
	if err != nil {
		return 0, fmt.Errorf("scrape the sidecar at %s: %w", address, err)
	}
	for _, m := range families["lastcall_connections"].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetValue() == "busy" {
				return int(m.GetGauge().GetValue()), nil
			}
		}
	}
	return 0, fmt.Errorf("the metrics at %s lack lastcall_connections", address)
}

// report updates the responder's part of the Eviction's status.
func (r *Responder) report(ctx context.Context, e *lifecycle.Eviction, complete bool, message string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	evictions := r.client.LifecycleV1alpha1().Evictions(e.Namespace)
	latest, err := evictions.Get(ctx, e.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the eviction: %w", err)
	}
	i := own(latest)
	if i < 0 || stateOf(latest) != lifecycle.ResponderStateActive {
		return nil
	}
	now, status := metav1.Now(), &latest.Status.Responders[i]
	status.HeartbeatTime, status.Message = &now, &message
	if complete && status.CompletionTime == nil {
		status.CompletionTime = &now
	}
	if _, err := evictions.UpdateStatus(ctx, latest, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update the eviction's status: %w", err)
	}
	return nil
}
