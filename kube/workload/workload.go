// Package workload reads a Deployment, StatefulSet, DaemonSet or Pod, waits for its rollouts, and triggers one.
package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// Clients reach the API server.
type Clients struct {
	Core coreclient.CoreV1Interface
	Apps appsclient.AppsV1Interface
}

// CallTimeout bounds each request to the API server, except for watches and logs.
const CallTimeout = 15 * time.Second

// Connect makes clients. They have no time limit of their own, since logs are read for as long as pods run.
func Connect(config *rest.Config) (c Clients, err error) {
	config, client, err := HTTPClient(config, 0)
	if err != nil {
		return c, err
	}
	var errs [2]error
	c.Core, errs[0] = coreclient.NewForConfigAndClient(config, client)
	c.Apps, errs[1] = appsclient.NewForConfigAndClient(config, client)
	return c, errors.Join(errs[:]...)
}

// HTTPClient returns a connection to the API server, with a time limit for each request; 0 is none.
func HTTPClient(config *rest.Config, timeout time.Duration) (*rest.Config, *http.Client, error) {
	config = rest.CopyConfig(config)
	config.Timeout, config.QPS, config.Burst = timeout, 50, 100
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for the API server: %w", err)
	}
	return config, client, nil
}

// Workload is a Deployment, StatefulSet, DaemonSet or a single Pod.
type Workload struct {
	Kind      string // deployment, statefulset, daemonset or pod
	Namespace string
	Name      string

	labels, fields string // that select its pods; Read sets them
}

// String is the workload's name as kubectl writes it, such as deployment/web.
func (w *Workload) String() string { return w.Kind + "/" + w.Name }

// kinds are the kinds and kubectl's other names of them.
var kinds = map[string]string{
	"deployment": "deployment", "deployments": "deployment", "deploy": "deployment",
	"statefulset": "statefulset", "statefulsets": "statefulset", "sts": "statefulset",
	"daemonset": "daemonset", "daemonsets": "daemonset", "ds": "daemonset",
	"pod": "pod", "pods": "pod", "po": "pod",
}

// Parse reads a workload's name such as deploy/web, sts/db or pod/web-5d9c7b6f4-x2x8k.
func Parse(namespace, text string) (*Workload, error) {
	kind, name, ok := strings.Cut(text, "/")
	w := &Workload{Kind: kinds[strings.ToLower(strings.TrimSuffix(kind, ".apps"))], Namespace: namespace, Name: name}
	if !ok || w.Kind == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("workload %q: must be KIND/NAME with the kind deployment, statefulset, daemonset or pod", text)
	}
	return w, nil
}

// State is a workload's specification and status, as far as rollouts need it.
type State struct {
	Wanted, Current, Updated, Available int32 // replicas
	Paused                              bool
	Update                              string // "RollingUpdate" or another strategy; empty for a Pod

	generation, observed int64
}

// Read reads the workload, and how to select its pods.
func (w *Workload) Read(ctx context.Context, c Clients) (s State, err error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	var selector *metav1.LabelSelector
	switch w.Kind {
	case "pod":
		w.fields = fields.OneTermEqualSelector("metadata.name", w.Name).String()
		_, err = c.Core.Pods(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		return s, w.Explain(err, "read", "get on pods")
	case "deployment":
		var d *appsv1.Deployment
		if d, err = c.Apps.Deployments(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{}); err == nil {
			selector = d.Spec.Selector
			s = State{generation: d.Generation, observed: d.Status.ObservedGeneration, Wanted: ptr.Deref(d.Spec.Replicas, 1),
				Current: d.Status.Replicas, Updated: d.Status.UpdatedReplicas,
				Available: d.Status.AvailableReplicas, Paused: d.Spec.Paused, Update: string(d.Spec.Strategy.Type)}
		}
	case "statefulset":
		var d *appsv1.StatefulSet
		if d, err = c.Apps.StatefulSets(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{}); err == nil {
			selector = d.Spec.Selector
			s = State{generation: d.Generation, observed: d.Status.ObservedGeneration, Wanted: ptr.Deref(d.Spec.Replicas, 1),
				Current: d.Status.Replicas, Updated: d.Status.UpdatedReplicas,
				Available: d.Status.AvailableReplicas, Update: string(d.Spec.UpdateStrategy.Type)}
		}
	case "daemonset":
		var d *appsv1.DaemonSet
		if d, err = c.Apps.DaemonSets(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{}); err == nil {
			n := d.Status
			selector = d.Spec.Selector
			s = State{generation: d.Generation, observed: n.ObservedGeneration, Wanted: n.DesiredNumberScheduled,
				Current: n.CurrentNumberScheduled, Updated: n.UpdatedNumberScheduled,
				Available: n.NumberAvailable, Update: string(d.Spec.UpdateStrategy.Type)}
		}
	}
	if err != nil {
		return s, w.Explain(err, "read", "get on "+w.Kind+"s.apps")
	}
	labels, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return s, fmt.Errorf("selector of %s: %w", w, err)
	}
	w.labels = labels.String()
	return s, nil
}

// Select restricts the options of a list or watch to the workload's pods. Read comes first.
func (w *Workload) Select(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = w.labels, w.fields
	return o
}

// Settled reports whether no rollout is in progress.
func (s State) Settled() bool {
	return s.observed >= s.generation && s.Current == s.Wanted && s.Updated == s.Wanted && s.Available == s.Wanted
}

// Pods lists the workload's pods that run and are not about to end, at most limit. Read comes first.
func (w *Workload) Pods(ctx context.Context, c Clients, limit int64) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	list, err := c.Core.Pods(w.Namespace).List(ctx, w.Select(metav1.ListOptions{Limit: limit}))
	if err != nil {
		return nil, w.Explain(err, "list the pods of", "list on pods")
	}
	var out []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			out = append(out, p)
		}
	}
	return out, nil
}

// CanRestart returns an error if the workload has no rollouts that a restart could trigger.
func (s State) CanRestart(w *Workload) error {
	switch {
	case w.Kind == "pod":
		return fmt.Errorf("%s has no rollouts: name its Deployment, StatefulSet or DaemonSet, or delete the pod yourself", w)
	case s.Paused:
		return fmt.Errorf("%s is paused: kubectl rollout resume %s", w, w)
	case s.Update == string(appsv1.OnDeleteStatefulSetStrategyType):
		return fmt.Errorf("%s has the update strategy OnDelete: a restart ends no pod", w)
	}
	return nil
}

// Restart restarts as kubectl rollout restart does: it changes an annotation of the pod template.
func (w *Workload) Restart(ctx context.Context, c Clients, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{"kubectl.kubernetes.io/restartedAt": now.Format(time.RFC3339)}}}}})
	if err != nil {
		return err
	}
	o := metav1.PatchOptions{FieldManager: "lastcallctl"}
	switch w.Kind {
	case "deployment":
		_, err = c.Apps.Deployments(w.Namespace).Patch(ctx, w.Name, types.StrategicMergePatchType, patch, o)
	case "statefulset":
		_, err = c.Apps.StatefulSets(w.Namespace).Patch(ctx, w.Name, types.StrategicMergePatchType, patch, o)
	case "daemonset":
		_, err = c.Apps.DaemonSets(w.Namespace).Patch(ctx, w.Name, types.StrategicMergePatchType, patch, o)
	}
	return w.Explain(err, "restart", "patch on "+w.Kind+"s.apps")
}

// Explain wraps an error of the API server with what was being done to the workload, and with the missing right.
func (w *Workload) Explain(err error, doing, right string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return fmt.Errorf("%s %s: %w "+
			"(the pod itself must satisfy the namespace's pod security level, as its ephemeral containers do)", doing, w, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s %s: %w (needed in namespace %s: %s)", doing, w, err, w.Namespace, right)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s %s: no response from the API server: %w", doing, w, err)
	}
	return fmt.Errorf("%s %s: %w", doing, w, err)
}

// Follow calls set with each state of the workload's pods, one at a time, until end is called or ctx ends; gone: the
// pod was deleted. It returns when set has got all pods that exist, or the first error of the API server. A later error
// is retried. Read comes first.
func (w *Workload) Follow(ctx context.Context, c Clients, set func(p *corev1.Pod, gone bool)) (end func(), err error) {
	pods := c.Core.Pods(w.Namespace)
	forward := func(object any, gone bool) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok { // after an interrupted watch
			object = last.Obj
		}
		if p, ok := object.(*corev1.Pod); ok {
			set(p, gone)
		}
	}
	informer := cache.NewSharedInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, w.Select(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, w.Select(o))
		},
	}, c.Core), &corev1.Pod{}, 0)
	failed := make(chan error, 1)
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		select {
		case failed <- err:
		default: // not the first
		}
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
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	end()
	return nil, w.Explain(err, "watch the pods of", "list and watch on pods")
}
