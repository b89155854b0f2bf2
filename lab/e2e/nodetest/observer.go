package nodetest

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/observe"
)

// ObserverNamespace is that of the observer's own release of the chart: that of the webhook admits no such pods.
const ObserverNamespace = "lastcall-observe"

// Observer has the chart of the checkout in the folder root install the observer of an image's tag until the end of the
// test, and waits until it serves.
func Observer(t *testing.T, root, tag string, patience time.Duration) {
	t.Helper()
	ApplyObserver(t, root, tag, "", "")
	if _, err := Kubectl("", "rollout", "status", "daemonset", "lastcall-observer", "--namespace", ObserverNamespace, "--timeout", patience.String()); err != nil {
		t.Fatal(err)
	}
}

// ApplyObserver is Observer with a text of the manifests replaced. It does not wait.
func ApplyObserver(t *testing.T, root, tag, text, by string) {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, "bin/chart"), "template", filepath.Join(root, "deploy/chart"), "--namespace", ObserverNamespace, "--version", tag,
		"--set", "registry=localhost,webhook.enabled=false,observer.enabled=true").Output()
	if err != nil {
		t.Fatal("render the chart (make e2e and make e2e-mesh build bin/chart): ", err)
	}
	if !strings.Contains(string(out), text) {
		t.Fatalf("the chart has no %q", text)
	}
	manifests := strings.Replace(string(out), text, by, 1)
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ObserverNamespace + ", labels: {pod-security.kubernetes.io/enforce: privileged}}\n"
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := Kubectl("", "--namespace", ObserverNamespace, "logs", "daemonset/lastcall-observer", "--tail", "50")
			t.Logf("the observer:\n%s", out)
		}
		_, _ = Kubectl(manifests, "delete", "--namespace", ObserverNamespace, "-f", "-")
	})
	if _, err := Kubectl(namespace, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if _, err := Kubectl(manifests, "apply", "--namespace", ObserverNamespace, "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// Observed is the observer's report about a pod.
func (n *Namespace) Observed(p *corev1.Pod) (r observe.Termination) {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.T.Context(), n.Patience)
	defer cancel()
	pods, err := n.Client.CoreV1().Pods(ObserverNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=observer"})
	if err != nil || len(pods.Items) == 0 {
		n.T.Fatal("there is no observer: ", err)
	}
	log, err := n.Client.CoreV1().Pods(ObserverNamespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		n.T.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	lines := bufio.NewScanner(log)
	for lines.Buffer(nil, 256<<10); lines.Scan(); {
		if strings.Contains(lines.Text(), string(p.UID)) && json.Unmarshal(lines.Bytes(), &r) == nil {
			return r
		}
	}
	n.T.Fatalf("the observer's log has no line about %s: %v", p.Name, lines.Err())
	return r
}
