package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// maxPods is how many pods a workload may have.
const maxPods = 500

// target is the workload as it is before the disruption.
type target struct {
	state    workload.State
	pods     []corev1.Pod
	ending   *termination.Termination // of its pods, by their template
	services []string                 // that select its pods
	notes    []string
}

// inspect reads the workload and refuses one that must not be disrupted now.
func (r *run) inspect(ctx context.Context) error {
	w, t := r.Workload, &r.target
	var err error
	if t.state, err = w.Read(ctx, r.clients.Clients); err != nil {
		return err
	}
	if t.pods, err = w.Pods(ctx, r.clients.Clients, maxPods+1); err != nil {
		return err
	}
	if err := t.state.CanRestart(w); err != nil && r.How == Restart {
		return err
	}
	switch {
	case t.state.Paused:
		return fmt.Errorf("%s is paused: kubectl rollout resume %s", w, w)
	case !t.state.Settled():
		return fmt.Errorf("a rollout of %s is in progress, or its pods are not available (%d of %d): wait until it is complete", w, t.state.Available, t.state.Wanted)
	case len(t.pods) == 0:
		return fmt.Errorf("%s has no running pod", w)
	case len(t.pods) > maxPods:
		return fmt.Errorf("%s has more than %d pods: rehearse a smaller workload with the same pods", w, maxPods)
	case r.How == Scale && r.Replicas == t.state.Wanted:
		return OptionError{fmt.Errorf("--scale is %d, and %s has %d replicas: no pod would end", r.Replicas, w, t.state.Wanted)}
	case isForwarded(r.URL):
		return OptionError{fmt.Errorf("--url %s is kubectl port-forward, which is tied to one pod and ends with it: use an address of the Service, its ingress or load balancer", r.URL.Redacted())}
	}
	// The pods themselves have what the webhooks of meshes have added.
	t.ending = termination.Of(&t.pods[0], termination.Options{})
	if err := r.findServices(ctx); err != nil {
		return err
	}
	r.findBudgets(ctx)
	if isLocal(r.URL) {
		r.note("%s is this machine: a forwarded port is tied to one pod, and breaks when it ends", r.URL.Host)
	}
	if strings.HasPrefix(t.state.Update, "Recreate") {
		r.note("the strategy Recreate ends all pods before it starts new ones: requests in between are lost")
	}
	if t.state.Wanted == 1 && r.How == DeletePod {
		r.note("there is 1 replica: no pod serves until the new one is ready")
	}
	return nil
}

func (r *run) note(format string, args ...any) {
	r.target.notes = append(r.target.notes, fmt.Sprintf(format, args...))
}

// findServices finds the Services of the pods, whose EndpointSlices are watched.
func (r *run) findServices(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, workload.CallTimeout)
	defer cancel()
	w := r.Workload
	list, err := r.clients.Core.Services(w.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return w.Explain(err, "list the Services of", "list on services")
	}
	for _, s := range list.Items {
		if len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(r.target.pods[0].Labels)) {
			r.target.services = append(r.target.services, s.Name)
		}
	}
	slices.Sort(r.target.services)
	if len(r.target.services) == 0 {
		r.note("no Service selects the pods: their endpoints are not watched")
	}
	return nil
}

// findBudgets notes disruption budgets that stop a drain of a node. Rollouts ignore them.
func (r *run) findBudgets(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, workload.CallTimeout)
	defer cancel()
	list, err := r.clients.Policy.PodDisruptionBudgets(r.Workload.Namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		r.note("PodDisruptionBudgets are not readable: list on poddisruptionbudgets.policy is needed")
		return
	case err != nil:
		r.note("PodDisruptionBudgets are not readable: %v", err)
		return
	}
	for _, b := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(r.target.pods[0].Labels)) && b.Status.DisruptionsAllowed == 0 {
			r.note("PodDisruptionBudget %s allows no disruption now: this rehearsal ignores it, a drain of a node would wait", b.Name)
		}
	}
}

// plan is what the rehearsal is about to do.
func (r *run) plan() []string {
	w, t := r.Workload, &r.target
	var kinds []string
	for _, k := range r.Requests {
		kinds = append(kinds, k.String())
	}
	lines := []string{fmt.Sprintf("send %s to %s from this machine, %.3g requests a second, until all is complete", strings.Join(kinds, ", "), r.URL.Redacted(), r.load.Rate)}
	switch r.How {
	case Restart:
		lines = append(lines, fmt.Sprintf("restart %s in namespace %s as kubectl rollout restart does (%s): its %s end and are replaced", w, w.Namespace, t.state.Update, count(len(t.pods), "pod")))
	case Scale:
		lines = append(lines, fmt.Sprintf("scale %s in namespace %s from %d to %s, and back to %d afterwards", w, w.Namespace, t.state.Wanted, count(int(r.Replicas), "replica"), t.state.Wanted))
	case DeletePod:
		lines = append(lines, fmt.Sprintf("delete pod %s of %s in namespace %s, which is replaced", t.pods[0].Name, w, w.Namespace))
	}
	lines = append(lines, fmt.Sprintf("each pod has %v to end (%s)", t.ending.GracePeriod(), t.preStop()))
	for _, n := range t.notes {
		lines = append(lines, "note: "+n)
	}
	return lines
}

// app is the first of the pods' own containers.
func (t *target) app() *termination.Container {
	for i := range t.ending.Containers {
		if c := &t.ending.Containers[i]; c.Role == termination.App {
			return c
		}
	}
	return &termination.Container{PreStop: termination.Hook{Kind: termination.NoHook, IsKnown: true}}
}

// preStop is the app's hook in words.
func (t *target) preStop() string {
	h := t.app().PreStop
	if h.Kind == termination.NoHook {
		return "no preStop hook"
	}
	return "preStop " + h.Text
}

// count is such as "1 pod" or "2 pods".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
