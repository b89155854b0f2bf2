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
