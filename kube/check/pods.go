package check

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

func (c *checker) pods() {
	c.group("Injected pods")
	const name = "there are injected pods"
	list, isKnown := look(c, name, func(ctx context.Context) (*corev1.PodList, error) {
		injected := inject.LabelInjected + "=" + inject.LabelInjectedValue
		return c.Core.Pods(c.Pods).List(ctx, metav1.ListOptions{LabelSelector: injected, Limit: maxPods})
	})
	if !isKnown {
		return
	}
	if pods := list.Items; len(pods) == 0 {
		c.add(Check{Name: name, Status: Warning, Detail: "none", Page: "install.md",
			Hint: "kubectl label namespace NAMESPACE lastcall.dev/inject=true, " +
				"then kubectl -n NAMESPACE rollout restart deployment"})
	} else {
		more := ""
		if list.Continue != "" {
			more = fmt.Sprintf("; the first %d are checked", maxPods)
		}
		c.ok(name, "%d%s", len(pods), more)
		c.sidecars(pods)
		c.late(pods)
	}
	c.missed()
}

// sidecars checks the containers that were injected.
func (c *checker) sidecars(pods []corev1.Pod) {
	tags := map[string]int{}
	var waiting []string
	for _, p := range pods {
		for _, one := range pod.Containers(&p.Spec) {
			if strings.HasPrefix(one.Name, "lastcall") {
				tags[tagOf(one.Image)]++
			}
		}
		for _, s := range pod.Statuses(&p) {
			if w := s.State.Waiting; w != nil && strings.HasPrefix(s.Name, "lastcall") &&
				w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
				waiting = append(waiting, fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, s.State.Waiting.Reason))
			}
		}
	}
	c.compareVersions("sidecars have the version of this lastcallctl", tags)
	c.list("sidecars run", Failed, waiting,
		"kubectl logs POD -c lastcall; for ErrImagePull, check the image's registry and pull secrets")
}

// late finds pods into which another injector has put a proxy after lastcall, whose webhook was not called again.
func (c *checker) late(pods []corev1.Pod) {
	var wrong []string
	for i := range pods {
		if text := inject.Unfinished(&pods[i]); text != "" {
			wrong = append(wrong, pods[i].Namespace+"/"+pods[i].Name+": "+text)
		}
	}
	c.list("no proxy was added after lastcall", Failed, wrong,
		"the webhook was not called after another product's: "+
			"check that it is ready and has reinvocationPolicy IfNeeded, then restart these workloads")
}

// missed are pods without lastcall that request it, by themselves or by their namespace.
func (c *checker) missed() {
	const name = "all pods that request injection are injected"
	list, _ := look(c, name, func(ctx context.Context) (*corev1.NamespaceList, error) {
		return c.Core.Namespaces().List(ctx, metav1.ListOptions{})
	})
	if list == nil {
		return
	}
	pods, _ := look(c, name, func(ctx context.Context) (*corev1.PodList, error) {
		others := inject.LabelInjected + "!=" + inject.LabelInjectedValue
		return c.Core.Pods(c.Pods).List(ctx, metav1.ListOptions{LabelSelector: others, Limit: maxPods})
	})
	if pods == nil {
		return
	}
	namespaces := map[string]inject.Namespace{}
	for _, ns := range list.Items {
		namespaces[ns.Name] = inject.Namespace{Name: ns.Name, Labels: ns.Labels}
	}
	var missed []string
	for i := range pods.Items {
		p := &pods.Items[i]
		isMissed := inject.IsMissed(&p.ObjectMeta, inject.Options{Namespace: namespaces[p.Namespace]})
		hasEnded := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if isMissed && !hasEnded && !p.Spec.HostNetwork {
			missed = append(missed, p.Namespace+"/"+p.Name)
		}
	}
	if len(missed) > 0 {
		c.add(Check{Name: name, Status: Warning,
			Detail: fmt.Sprintf("%d are not: %s", len(missed), some(missed)),
			Page:   "install.md#when-the-webhook-does-not-answer",
			Hint: "they are older than the label or the webhook, or the webhook's selectors leave them out: " +
				"kubectl rollout restart their workload"})
		return
	}
	c.ok(name, "")
}
