//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
)

// submit has the API server look at a pod without keeping it.
func (n *namespace) submit(pod *corev1.Pod) (*corev1.Pod, error) {
	return client.CoreV1().Pods(n.Name).Create(n.T.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
}

// generated are the pods that kube/inject's tests generate.
func generated(t *testing.T) (pods []*corev1.Pod) {
	file := filepath.Join(t.TempDir(), "pods.json")
	write := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run=^TestWritePods$", "../../kube/inject")
	write.Env = append(os.Environ(), "LASTCALL_WRITE_PODS="+file)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &pods); err != nil {
		t.Fatal(err)
	}
	return pods
}

// TestThousandPods are accepted as they are (else they would prove nothing), injected offline, and through the
// webhook, which changes them in the same way.
func TestThousandPods(t *testing.T) {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "runc"}
	if _, err := client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.NodeV1().RuntimeClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{})
	})
	plain := newNamespace(t, map[string]string{"test": "corpus"})
	hooked := newNamespace(t, map[string]string{"lastcall.dev/inject": "true"})
	pods := make(chan *corev1.Pod)
	var mu sync.Mutex
	outcomes := map[inject.Outcome]int{}
	byWebhook := 0
	var submitting sync.WaitGroup
	for range 4 {
		submitting.Go(func() {
			for pod := range pods {
				if _, err := plain.submit(pod); err != nil {
					t.Errorf("%s, as generated: %v", pod.Name, err)
					continue
				}
				after, result := inject.Pod(pod, inject.Options{Image: "lastcall:test", Token: strings.Repeat("t", 26), ByDefault: true})
				if _, err := plain.submit(after); err != nil {
					t.Errorf("%s, %s (%s, %s): %v", pod.Name, result.Outcome, result.Proxy, result.Sidecar, err)
				}
				got, err := hooked.submit(pod)
				if err != nil {
					t.Errorf("%s, through the webhook: %v", pod.Name, err)
					continue
				}
				mu.Lock()
				outcomes[result.Outcome]++
				if got.Labels[inject.LabelInjected] == inject.LabelInjectedValue || strings.HasPrefix(got.Annotations[inject.AnnotationStatus], string(inject.Injected)) {
					byWebhook++
				}
				mu.Unlock()
			}
		})
	}
	for _, pod := range generated(t) {
		pods <- pod
	}
	close(pods)
	submitting.Wait()
	t.Logf("offline: %v; injected by the webhook: %d", outcomes, byWebhook)
	if byWebhook != outcomes[inject.Injected] {
		t.Errorf("the webhook injected %d, offline it was %d", byWebhook, outcomes[inject.Injected])
	}
}
