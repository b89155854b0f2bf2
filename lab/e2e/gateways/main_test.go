//go:build e2e

package gateways

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
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

func connect() (err error) {
	if *tag == "" {
		return errors.New("-tag is missing: start this by make e2e-gateways")
	}
	_, client, err = nodetest.Connect("make cluster-up")
	return err
}

// namespace is one test's own.
type namespace struct{ *nodetest.Namespace }

func newNamespace(t *testing.T, name string) *namespace {
	t.Helper()
	return &namespace{nodetest.New(t, client, patience, name, nil)}
}

// clusterWide applies objects that belong to no namespace, by the server, since they are too large for an annotation.
// They stay: others may use them.
func (n *namespace) clusterWide(files ...string) {
	n.T.Helper()
	for _, file := range files {
		n.Kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
	}
}

// forget deletes objects that belong to no namespace when the test ends.
func (n *namespace) forget(kinds string, which ...string) {
	n.T.Cleanup(func() {
		_, _ = n.TryKubectl("", append([]string{"delete", kinds, "--ignore-not-found", "--timeout=20s"}, which...)...)
	})
}

// patch is a file of deploy/gateways, with the image of this checkout.
func patch(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../deploy/gateways", name))
	must.Do(t, err)
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

// app is the app behind all gateways.
func (n *namespace) app() {
	n.Apply(fmt.Sprintf(`apiVersion: apps/v1
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
	n.Kubectl("rollout", "status", "deployment", "web", "--timeout", patience.String())
}
