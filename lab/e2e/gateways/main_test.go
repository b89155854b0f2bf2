//go:build e2e

package gateways

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

// patience bounds every wait for something that is expected soon. Envoy Gateway's shutdown manager may take 60 s.
const patience = 2 * time.Minute

var (
	client   *kubernetes.Clientset
	tag      = flag.String("tag", "", "`tag` of the images in the cluster (set by make e2e-gateways)")
	samples  = flag.Int("samples", 2, "pods that end with a request in flight")
	restarts = flag.Int("restarts", 4, "pods that are replaced under load")
	rate     = flag.Int("rate", 60, "requests per `second` for each gateway")
	lag      = flag.Duration("lag", 2*time.Second, "how late clients learn of a change of the endpoints")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "gateways:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	if *tag == "" {
		return errors.New("-tag is missing: start this by make e2e-gateways")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("no cluster (make cluster-up): %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	client, err = kubernetes.NewForConfig(config)
	return err
}

// namespace is one test's own.
type namespace struct {
	t    *testing.T
	name string
}

func newNamespace(t *testing.T, name string) *namespace {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}, metav1.CreateOptions{})
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

// until calls f until it returns no error, and ends the test if it never does.
func (n *namespace) until(what string, f func() error) {
	n.t.Helper()
	if err := await(what, f); err != nil {
		n.t.Fatal(err)
	}
}

// await calls f until it returns no error.
func await(what string, f func() error) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("it never %s: %w", what, err)
}

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

// clusterWide applies objects that belong to no namespace, by the server, since they are too large for an annotation.
// They stay: others may use them.
func (n *namespace) clusterWide(files ...string) {
	n.t.Helper()
	for _, file := range files {
		n.kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
	}
}

// forget deletes objects that belong to no namespace when the test ends.
func (n *namespace) forget(kinds string, which ...string) {
	n.t.Cleanup(func() {
		_, _ = n.tryKubectl("", append([]string{"delete", kinds, "--ignore-not-found", "--timeout=20s"}, which...)...)
	})
}

// dump logs what a failed test's namespace looks like.
func (n *namespace) dump() {
	out, _ := n.tryKubectl("", "get", "all", "-o", "wide")
	n.t.Log(out)
	list, err := client.CoreV1().Pods(n.name).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		n.t.Log(err)
		return
	}
	for _, p := range list.Items {
		out, _ := n.tryKubectl("", "logs", p.Name, "--all-containers", "--prefix", "--tail", "5")
		n.t.Logf("logs of %s:\n%s", p.Name, out)
	}
}

// patch is a file of deploy/gateways, with the image of this checkout.
func patch(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../deploy/gateways", name))
	if err != nil {
		t.Fatal(err)
	}
	const image = "registry.example.com/team/lastcall:VERSION"
	if !strings.Contains(string(text), image) {
		t.Fatalf("%s does not contain the image %s", name, image)
	}
	return strings.ReplaceAll(string(text), image, "localhost/lastcall:"+*tag)
}

// module is the folder of a Go module that lab/peers/NAME requires.
func module(t *testing.T, name, path string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = filepath.Join("../../peers", name)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("find the module %s: %v", path, err)
	}
	return strings.TrimSpace(string(out))
}

// app is what all gateways serve.
func (n *namespace) app() {
	n.apply(fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      containers:
      - name: app
        image: local/rehearse:%s
        imagePullPolicy: Never
        args: [httpbin, --listen, ":8080", --max-delay, 60s, --on-term, exit]
        ports: [{containerPort: 8080, name: http}]
        readinessProbe: {httpGet: {path: /get, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
`, *tag))
	n.kubectl("rollout", "status", "deployment", "web", "--timeout", patience.String())
}
