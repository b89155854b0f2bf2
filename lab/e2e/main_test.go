//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long anything may take that is to come soon.
const patience = 90 * time.Second

// The cluster that all tests share.
var (
	config  *rest.Config
	client  *kubernetes.Clientset
	tag     = flag.String("tag", "", "`tag` of the images in the cluster (set by make e2e)")
	program = flag.String("gateway", "../../bin/lastcall-gateway", "`path` of lastcall-gateway")
	full    = flag.Duration("restart-loop", time.Minute, "how long pods are restarted under load, at least")

	loopRestarts = flag.Int("restarts", 0, "how many rollouts TestRestartLoop makes at least")
	loopRequests = flag.Int("requests", 0, "how many requests TestRestartLoop makes at least")
	loopRate     = flag.Int("rate", 100, "requests per `second` of TestRestartLoop")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := errors.Join(connect(), install()); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() (err error) {
	if *tag == "" {
		return fmt.Errorf("-tag is missing: start this by make e2e")
	}
	if *program, err = filepath.Abs(*program); err != nil {
		return err
	}
	config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("no cluster (make cluster-up): %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Get(context.Background(), "node", metav1.GetOptions{})
	return err
}

// install has the chart put the webhook into the cluster, and waits until it serves.
func install() error {
	render := exec.Command("../../bin/chart", "template", "../../deploy/chart", "--version", *tag,
		"--set", "registry=localhost", "--set", "sidecar.envoyImage=localhost/lastcall-envoy:"+*tag, "--set", "gateway.enabled=true", "--set", "gateway.service.type=ClusterIP")
	manifests, err := render.Output()
	if err != nil {
		return fmt.Errorf("render the chart (make e2e builds bin/chart): %w", err)
	}
	for _, step := range []struct {
		stdin string
		args  []string
	}{
		{"apiVersion: v1\nkind: Namespace\nmetadata: {name: lastcall-system, labels: {pod-security.kubernetes.io/enforce: restricted}}\n", []string{"apply", "-f", "-"}},
		{string(manifests), []string{"apply", "--namespace", system, "-f", "-"}},
		{"", []string{"rollout", "status", "deployment", webhook, "--namespace", system, "--timeout", patience.String()}},
		{"", []string{"rollout", "status", "deployment", ingressGateway, "--namespace", system, "--timeout", patience.String()}},
	} {
		cmd := exec.Command("kubectl", step.args...)
		cmd.Stdin = strings.NewReader(step.stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(step.args, " "), err, out)
		}
	}
	return nil
}

// namespace is one test's own.
type namespace struct {
	t    *testing.T
	name string
}

// newNamespace makes one in which pods get a sidecar, unless labels say another.
func newNamespace(t *testing.T, labels map[string]string) *namespace {
	t.Helper()
	if labels == nil {
		labels = map[string]string{"lastcall.dev/inject": "true"}
	}
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-", Labels: labels, Annotations: map[string]string{"test": t.Name()},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := &namespace{t, made.Name}
	t.Cleanup(func() {
		if t.Failed() {
			n.dump()
		}
		_ = client.CoreV1().Namespaces().Delete(context.Background(), n.name, metav1.DeleteOptions{})
	})
	n.until("has its account", func() error {
		_, err := client.CoreV1().ServiceAccounts(n.name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return n
}

// until asks again until there is no error.
func (n *namespace) until(what string, f func() error) {
	n.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	n.t.Fatalf("it never %s: %v", what, err)
}

// kubectl is the real one, in this namespace.
func (n *namespace) kubectl(args ...string) string {
	n.t.Helper()
	out, err := n.tryKubectl("", args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func (n *namespace) tryKubectl(stdin string, args ...string) (string, error) {
	cmd := exec.Command("kubectl", append([]string{"--namespace", n.name}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (n *namespace) apply(manifest string) {
	n.t.Helper()
	if _, err := n.tryKubectl(manifest, "apply", "-f", "-"); err != nil {
		n.t.Fatal(err)
	}
}

// available waits until a deployment's pods all serve.
func (n *namespace) available(deployment string) {
	n.t.Helper()
	n.kubectl("rollout", "status", "deployment", deployment, "--timeout", patience.String())
}

// pods of an app that are not being deleted.
func (n *namespace) pods(app string) []corev1.Pod {
	n.t.Helper()
	list, err := client.CoreV1().Pods(n.name).List(n.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		n.t.Fatal(err)
	}
	var out []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

// gone waits until the pod has left the API.
func (n *namespace) gone(p corev1.Pod) {
	n.t.Helper()
	n.until("lost pod "+p.Name, func() error {
		now, err := client.CoreV1().Pods(n.name).Get(n.t.Context(), p.Name, metav1.GetOptions{})
		if err == nil && now.UID == p.UID {
			return fmt.Errorf("it is %s", now.Status.Phase)
		}
		return nil
	})
}

// dump logs what a failed test's namespace looks like.
func (n *namespace) dump() {
	for _, args := range [][]string{
		{"get", "all", "-o", "wide"},
		{"get", "events", "--sort-by", ".metadata.creationTimestamp"},
	} {
		out, _ := n.tryKubectl("", args...)
		lines := strings.Split(out, "\n")
		n.t.Logf("kubectl %s:\n%s", strings.Join(args, " "), strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
	list, _ := client.CoreV1().Pods(n.name).List(context.Background(), metav1.ListOptions{})
	for _, p := range list.Items {
		out, _ := n.tryKubectl("", "logs", p.Name, "--all-containers", "--prefix", "--tail", "30")
		n.t.Logf("logs of %s:\n%s", p.Name, out)
	}
}
