//go:build e2e

package mesh

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
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long anything may take that is to come soon.
const patience = 90 * time.Second

// system is where lastcall is installed.
const system = "lastcall-system"

// The node, with Istio on it, that all tests share.
var (
	client  *kubernetes.Clientset
	podLogs string // where the kubelet keeps the logs of containers

	tag      = flag.String("tag", "", "`tag` of the images on the node (set by make e2e-mesh)")
	talk     = flag.String("talk", "../../../dist/linux-amd64/talk", "`path` of lab/e2e/talk")
	runs     = flag.Int("runs", 1, "how often each pod's end is measured")
	loop     = flag.Duration("restart-loop", 0, "how long pods are restarted under load; 0: not at all")
	rollouts = flag.Int("rollouts", 1, "how many rollouts are made of each form")
	table    = flag.String("table", "", "`file` to which the measured rows are appended")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := errors.Join(connect(), install()); err != nil {
		fmt.Fprintln(os.Stderr, "mesh:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() (err error) {
	if *tag == "" {
		return fmt.Errorf("-tag is missing: start this by make e2e-mesh")
	}
	file := os.Getenv("KUBECONFIG")
	podLogs = filepath.Join(filepath.Dir(file), "logs", "pods")
	if *talk, err = filepath.Abs(*talk); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return fmt.Errorf("no cluster (make mesh-up): %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if _, err = client.AppsV1().Deployments("istio-system").Get(context.Background(), "istiod", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("no Istio (make mesh-up): %w", err)
	}
	return nil
}

// install has the chart put the webhook into the cluster, and waits until it serves.
func install() error {
	manifests, err := exec.Command("../../../bin/chart", "template", "../../../deploy/chart", "--version", *tag, "--set", "registry=localhost").Output()
	if err != nil {
		return fmt.Errorf("render the chart (make e2e-mesh builds bin/chart): %w", err)
	}
	for _, step := range []struct {
		stdin string
		args  []string
	}{
		{"apiVersion: v1\nkind: Namespace\nmetadata: {name: " + system + ", labels: {pod-security.kubernetes.io/enforce: restricted}}\n", []string{"apply", "-f", "-"}},
		{string(manifests), []string{"apply", "--namespace", system, "-f", "-"}},
		{"", []string{"rollout", "status", "deployment", "lastcall-webhook", "--namespace", system, "--timeout", patience.String()}},
	} {
		if _, err := kubectl(step.stdin, step.args...); err != nil {
			return err
		}
	}
	return nil
}

func kubectl(stdin string, args ...string) (string, error) {
	cmd := exec.Command("kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// namespace is one test's own.
type namespace struct {
	t    *testing.T
	name string
}

// Labels of namespaces, by what injects.
var (
	byIstio = map[string]string{"istio-injection": "enabled"}
	byBoth  = map[string]string{"istio-injection": "enabled", "lastcall.dev/inject": "true"}
)

func newNamespace(t *testing.T, labels map[string]string) *namespace {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "mesh-", Labels: labels, Annotations: map[string]string{"test": t.Name()},
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
	n.until("has its account, and the certificate of Istio's authority", func() error {
		_, err := client.CoreV1().ServiceAccounts(n.name).Get(t.Context(), "default", metav1.GetOptions{})
		_, err2 := client.CoreV1().ConfigMaps(n.name).Get(t.Context(), "istio-ca-root-cert", metav1.GetOptions{})
		return errors.Join(err, err2)
	})
	return n
}

// until asks again until there is no error.
func (n *namespace) until(what string, f func() error) {
	n.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	n.t.Fatalf("it never %s: %v", what, err)
}

func (n *namespace) kubectl(args ...string) string {
	n.t.Helper()
	out, err := kubectl("", append([]string{"--namespace", n.name}, args...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func (n *namespace) apply(manifest string) {
	n.t.Helper()
	if _, err := kubectl(manifest, "--namespace", n.name, "apply", "-f", "-"); err != nil {
		n.t.Fatal(err)
	}
}

func (n *namespace) available(deployment string) {
	n.t.Helper()
	n.kubectl("rollout", "status", "deployment", deployment, "--timeout", patience.String())
}

// clusterIP of a Service.
func (n *namespace) clusterIP(service string) string {
	n.t.Helper()
	s, err := client.CoreV1().Services(n.name).Get(n.t.Context(), service, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return s.Spec.ClusterIP
}

// dump logs a failed test's pods and Events.
func (n *namespace) dump() {
	for _, args := range [][]string{{"get", "pods", "-o", "wide"}, {"get", "events", "--sort-by", ".metadata.creationTimestamp"}} {
		out, _ := kubectl("", append([]string{"--namespace", n.name}, args...)...)
		lines := strings.Split(out, "\n")
		n.t.Logf("kubectl %s:\n%s", strings.Join(args, " "), strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}
