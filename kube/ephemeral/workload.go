package ephemeral

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Clients reach the API server.
type Clients struct {
	Core coreclient.CoreV1Interface
	Apps appsclient.AppsV1Interface
}

// callTimeout bounds each request, except for watches and logs.
const callTimeout = 15 * time.Second

// Connect makes clients. They have no time limit of their own, since logs are read for as long as pods run.
func Connect(config *rest.Config) (c Clients, err error) {
	config = rest.CopyConfig(config)
	config.Timeout, config.UserAgent = 0, "lastcallctl"
	config.QPS, config.Burst = 50, 100
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, fmt.Errorf("make a client for the API server: %w", err)
	}
	var errs [2]error
	c.Core, errs[0] = coreclient.NewForConfigAndClient(config, client)
	c.Apps, errs[1] = appsclient.NewForConfigAndClient(config, client)
	if err := errors.Join(errs[:]...); err != nil {
		return c, fmt.Errorf("make a client for the API server: %w", err)
	}
	return c, nil
}

// Workload is a Deployment, StatefulSet, DaemonSet or a single Pod.
type Workload struct {
	Kind      string // deployment, statefulset, daemonset or pod
	Namespace string
	Name      string

	labels, fields string // that select its pods
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

// state is what Settled needs of a workload.
type state struct {
	generation, observed                int64
	wanted, current, updated, available int32
	paused, onDelete                    bool
	selector                            *metav1.LabelSelector
}

// read reads the workload, and how to select its pods.
func (w *Workload) read(ctx context.Context, c Clients) (s state, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch w.Kind {
	case "pod":
		w.fields = fields.OneTermEqualSelector("metadata.name", w.Name).String()
		_, err = c.Core.Pods(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		return s, w.explain(err, "read", "get on pods")
	case "deployment":
		var d *appsv1.Deployment
		if d, err = c.Apps.Deployments(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{}); err == nil {
			s = state{d.Generation, d.Status.ObservedGeneration, 1, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas, d.Spec.Paused, false, d.Spec.Selector}
			if d.Spec.Replicas != nil {
				s.wanted = *d.Spec.Replicas
			}
		}
	case "statefulset":
		var d *appsv1.StatefulSet
		if d, err = c.Apps.StatefulSets(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{}); err == nil {
			s = state{d.Generation, d.Status.ObservedGeneration, 1, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas, false, d.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType, d.Spec.Selector}
			if d.Spec.Replicas != nil {
				s.wanted = *d.Spec.Replicas
			}
		}
	case "daemonset":
		var d *appsv1.DaemonSet
		if d, err = c.Apps.DaemonSets(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{}); err == nil {
			n := d.Status
			s = state{d.Generation, n.ObservedGeneration, n.DesiredNumberScheduled, n.CurrentNumberScheduled, n.UpdatedNumberScheduled, n.NumberAvailable, false, d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType, d.Spec.Selector}
		}
	}
	if err != nil {
		return s, w.explain(err, "read", "get on "+w.Kind+"s.apps")
	}
	selector, err := metav1.LabelSelectorAsSelector(s.selector)
	if err != nil {
		return s, fmt.Errorf("selector of %s: %w", w, err)
	}
	w.labels = selector.String()
	return s, nil
}

// settled reports whether no rollout is in progress.
func (s state) settled() bool {
	return s.observed >= s.generation && s.current == s.wanted && s.updated == s.wanted && s.available == s.wanted
}

// pods lists the workload's pods that run and are not about to end.
func (w *Workload) pods(ctx context.Context, c Clients) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := c.Core.Pods(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.labels, FieldSelector: w.fields, Limit: maxPods + 1})
	if err != nil {
		return nil, w.explain(err, "list the pods of", "list on pods")
	}
	var out []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			out = append(out, p)
		}
	}
	return out, nil
}

// canRestart returns an error if the workload has no rollouts that a restart could trigger.
func (s state) canRestart(w *Workload) error {
	switch {
	case w.Kind == "pod":
		return fmt.Errorf("%s has no rollouts: name its Deployment, StatefulSet or DaemonSet, or delete the pod yourself", w)
	case s.paused:
		return fmt.Errorf("%s is paused: kubectl rollout resume %s", w, w)
	case s.onDelete:
		return fmt.Errorf("%s has the update strategy OnDelete: a restart ends no pod", w)
	}
	return nil
}

// restart does what kubectl rollout restart does: it changes an annotation of the pod template.
func (w *Workload) restart(ctx context.Context, c Clients, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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
	return w.explain(err, "restart", "patch on "+w.Kind+"s.apps")
}
