//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

const (
	system  = nodetest.System
	webhook = nodetest.Webhook
)

// TestNodeDrain has kubectl drain empty the node of one app's pods, in the face of a disruption budget.
func TestNodeDrain(t *testing.T) {
	n := newNamespace(t, nil)
	p := n.start(app{name: "web"})
	n.Apply("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}\n")
	answered := n.begin(p, "/delay/8")
	t.Cleanup(func() { n.Kubectl("uncordon", "node") })
	n.Kubectl("drain", "node", "--pod-selector", "app=web", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", patience.String())
	n.gone(p) // kubectl waits until it is
	wantOK(t, <-answered)
}

// TestWebhookDown takes the webhook away: pods start all the same, as they were before lastcall (failurePolicy Ignore).
func TestWebhookDown(t *testing.T) {
	n := newNamespace(t, nil)
	s := existing(t, system)
	s.Kubectl("scale", "deployment", webhook, "--replicas=0")
	t.Cleanup(func() {
		s.Kubectl("scale", "deployment", webhook, "--replicas=2")
		s.Available(webhook)
	})
	s.Kubectl("wait", "--for=delete", "pod", "--selector", "app.kubernetes.io/component=webhook", "--timeout", patience.String())
	out, err := exec.Command(lastcallctl, "check", "-n", n.Name).CombinedOutput()
	t.Logf("%s", out)
	if err == nil || !strings.Contains(string(out), "FAIL the controller is running") || !strings.Contains(string(out), "would not be injected") {
		t.Errorf("check without a webhook: %v", err)
	}
	began := time.Now()
	p := n.start(app{name: "web"})
	t.Logf("a pod without the webhook is ready after %.1f s", time.Since(began).Seconds())
	if isInjected(&p) {
		t.Error("the pod was injected without a webhook")
	}
	s.Kubectl("scale", "deployment", webhook, "--replicas=2")
	s.Available(webhook)
	out, err = exec.Command(lastcallctl, "check", "-n", n.Name).CombinedOutput()
	if !strings.Contains(string(out), "WARN all pods that request injection are injected") || !strings.Contains(string(out), n.Name+"/"+p.Name) {
		t.Errorf("check does not name the pod that was not injected: %v\n%s", err, out)
	}
}

// unmade is a pod that only webhooks see.
var unmade = corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "local/none"}}}

// TestWebhookReplicasDeleted deletes all replicas of the webhook at once while pods are created: each must be injected. The
// pods are created for the webhooks only (dry run).
func TestWebhookReplicasDeleted(t *testing.T) {
	n := newNamespace(t, nil)
	s := existing(t, system)
	const selector = "app.kubernetes.io/component=webhook"
	list := func() []corev1.Pod {
		pods, err := client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		must.Do(t, err)
		return pods.Items
	}
	before := list()
	stop := make(chan struct{})
	created := 0
	var missed []string // when
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			made, err := n.submit(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: unmade})
			if err != nil {
				done <- err
				return
			}
			created++
			if !isInjected(made) {
				missed = append(missed, fmt.Sprintf("%.2f s", time.Since(began).Seconds()))
			}
			time.Sleep(10 * time.Millisecond) // the rate of a rollout
		}
	}()
	s.Kubectl("delete", "pods", "--selector", selector, "--wait=false")
	s.Until("replaced its webhook", func() error {
		for _, p := range list() {
			for _, old := range before {
				if p.UID == old.UID {
					return errors.New(p.Name + " is there")
				}
			}
		}
		return nil
	})
	s.Available(webhook)
	close(stop)
	must.Do(t, <-done)
	if len(missed) > 0 || created == 0 {
		t.Errorf("%d of %d pods were not injected, after %v", len(missed), created, missed)
	}
	t.Logf("%d pods, %d of them not injected", created, len(missed))
}

// TestCertificateRotates takes the webhook's certificate through a rotation of its authority while pods are created: each
// must be injected. The next authority stands in the webhook's Secret long before it is used; here the test puts one
// there whose time comes soon.
func TestCertificateRotates(t *testing.T) {
	t.Parallel()
	n := newNamespace(t, nil)
	secret, err := client.CoreV1().Secrets(system).Get(t.Context(), webhook, metav1.GetOptions{})
	must.Do(t, err)
	before := secret.Data["ca.crt"]
	// Used an hour after it was made, of which it is backdated by 5 minutes (kube/webhook/rotation.go); the replicas
	// look once a minute, and one of the looks must fall before that.
	from := time.Now().Add(75*time.Second - 65*time.Minute)
	next, key := certificatetest.Root(t, from, from.AddDate(1, 0, 0))
	secret.Data["next.crt"], secret.Data["next.key"] = next, key
	if _, err := client.CoreV1().Secrets(system).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, rotated := 0, time.Time{}
	for end := time.Now().Add(4 * time.Minute); rotated.IsZero() || time.Since(rotated) < 70*time.Second; made++ {
		if time.Now().After(end) {
			t.Fatal("the authority never became another")
		}
		pod, err := n.submit(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: unmade})
		must.Do(t, err)
		if !isInjected(pod) {
			t.Fatalf("pod %d was not injected (rotated: %v)", made, !rotated.IsZero())
		}
		if made%20 == 0 && rotated.IsZero() {
			now, err := client.CoreV1().Secrets(system).Get(t.Context(), webhook, metav1.GetOptions{})
			if err == nil && !bytes.Equal(now.Data["ca.crt"], before) {
				rotated = time.Now()
			}
		}
		time.Sleep(50 * time.Millisecond) // a rate, not a wait
	}
	t.Logf("%d pods injected before and after the rotation", made)
}

func isInjected(p *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool { return c.Name == "lastcall" })
}
