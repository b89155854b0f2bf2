package check

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

func (c *checker) webhook() {
	c.group("Webhook")
	if isThere := c.deployment(); isThere {
		c.dryRun()
	}
}

// deployment checks the controller. It returns false if there is none.
func (c *checker) deployment() bool {
	const name = "the controller is running"
	d, isKnown := look(c, name, func(ctx context.Context) (*appsv1.Deployment, error) {
		return c.Apps.Deployments(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	})
	if !isKnown {
		return true
	}
	if d == nil {
		c.add(Check{Name: name, Status: Failed, Detail: fmt.Sprintf("no Deployment %s in namespace %s", c.Name, c.Namespace),
			Hint: "install lastcall, or name its namespace with --system-namespace", Page: "install.md"})
		return false
	}
	want, ready := ptr.Deref(d.Spec.Replicas, 1), d.Status.ReadyReplicas
	switch {
	case ready == 0:
		c.add(Check{Name: name, Status: Failed, Detail: fmt.Sprintf("0 of %d replicas are ready", want),
			Hint: fmt.Sprintf("kubectl -n %s describe deployment %s", c.Namespace, c.Name)})
	case ready < want:
		c.add(Check{Name: name, Status: Warning, Detail: fmt.Sprintf("%d of %d replicas are ready", ready, want),
			Hint: fmt.Sprintf("kubectl -n %s get pods", c.Namespace)})
	default:
		c.ok(name, "%d of %d replicas are ready", ready, want)
	}
	var image string
	for _, one := range d.Spec.Template.Spec.Containers {
		if image == "" || one.Name == "webhook" {
			image = one.Image
		}
	}
	c.compareVersions("the controller has the version of this lastcallctl", map[string]int{tagOf(image): 1})
	return true
}

// tagOf is the tag of an image's name, or its digest.
func tagOf(image string) string {
	if _, digest, ok := strings.Cut(image, "@"); ok {
		return digest
	}
	name := image[strings.LastIndex(image, "/")+1:]
	if _, tag, ok := strings.Cut(name, ":"); ok {
		return tag
	}
	return "latest"
}

// compareVersions compares the tags of images with this program's version. Digests say nothing.
func (c *checker) compareVersions(name string, tags map[string]int) {
	if c.Version == "" {
		return
	}
	var other []string
	for tag, n := range tags {
		if strings.HasPrefix(tag, "sha256:") {
			continue
		}
		if strings.TrimPrefix(tag, "v") != strings.TrimPrefix(c.Version, "v") {
			text := tag
			if n > 1 {
				text += fmt.Sprintf(" (%d times)", n)
			}
			other = append(other, text)
		}
	}
	if len(other) == 0 {
		c.ok(name, "%s", c.Version)
		return
	}
	c.add(Check{Name: name, Status: Warning, Detail: fmt.Sprintf("%s; this is %s", some(other), c.Version),
		Hint: "use the lastcallctl of the installed version, or upgrade; kubectl rollout restart gives pods the new sidecar",
		Page: "install.md#upgrade"})
}

// dryRun creates a pod that asks for lastcall, for the webhooks only.
func (c *checker) dryRun() {
	const name = "the API server reaches the webhook"
	namespace := cmp.Or(c.Pods, metav1.NamespaceDefault)
	began := time.Now()
	made, isKnown := look(c, name, func(ctx context.Context) (*corev1.Pod, error) {
		return c.Core.Pods(namespace).Create(ctx, probe(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	})
	if made == nil {
		if isKnown {
			c.add(Check{Name: name, Status: Failed, Detail: "there is no namespace " + namespace})
		}
		return
	}
	took := time.Since(began).Round(time.Millisecond)
	if made.Labels[inject.LabelInjected] == inject.LabelInjectedValue {
		c.ok(name, "a pod in namespace %s would be injected (dry run, %v)", namespace, took)
		return
	}
	detail := fmt.Sprintf("a pod in namespace %s would not be injected (dry run, %v)", namespace, took)
	if status := made.Annotations[inject.AnnotationStatus]; status != "" {
		detail += ": " + status
	}
	c.add(Check{Name: name, Status: Failed, Detail: detail,
		Hint: fmt.Sprintf("no MutatingWebhookConfiguration (kubectl get mutatingwebhookconfigurations), "+
			"or else the API server's log names the reason: a firewall between it and port 8443 of the pods in %s, "+
			"a NetworkPolicy, or TLS", c.Namespace),
		Page: "install.md"})
}

// probe is a pod that every pod security level admits.
func probe() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lastcall-check-",
			Labels:      map[string]string{inject.AnnotationInject: "true"},
			Annotations: map[string]string{"lastcall.dev/proxy": "sockets"}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: "app", Image: "lastcall.invalid/check", Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
				SecurityContext: &corev1.SecurityContext{
					RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1000), AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
		},
	}
}

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
