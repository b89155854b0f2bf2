//go:build e2e

package mesh

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// patience is how long anything may take that is to come soon.
const patience = 90 * time.Second

// The node, with Istio on it, that all tests share.
var (
	client  *kubernetes.Clientset
	podLogs string // where the kubelet keeps the logs of containers

	tag      = flag.String("tag", "", "`tag` of the images on the node (set by make e2e-mesh)")
	runs     = flag.Int("runs", 1, "how often each pod's end is measured")
	rollouts = flag.Int("rollouts", 1, "how many rollouts are made of each form")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := errors.Join(connect(), nodetest.Install("../../..", *tag, patience)); err != nil {
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
	if _, client, err = nodetest.Connect("make mesh-up"); err != nil {
		return err
	}
	if _, err = client.AppsV1().Deployments("istio-system").Get(context.Background(), "istiod", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("no Istio (make mesh-up): %w", err)
	}
	return nil
}

// namespace is one test's own.
type namespace struct{ *nodetest.Namespace }

// Labels of namespaces, by what injects.
var (
	byIstio = map[string]string{"istio-injection": "enabled"}
	byBoth  = map[string]string{"istio-injection": "enabled", "lastcall.dev/inject": "true"}
)

func newNamespace(t *testing.T, labels map[string]string) *namespace {
	t.Helper()
	n := &namespace{nodetest.New(t, client, patience, "mesh", labels)}
	n.Until("has the certificate of Istio's authority", func() error {
		_, err := client.CoreV1().ConfigMaps(n.Name).Get(t.Context(), "istio-ca-root-cert", metav1.GetOptions{})
		return err
	})
	return n
}

// clusterIP of a Service.
func (n *namespace) clusterIP(service string) string {
	n.T.Helper()
	s, err := client.CoreV1().Services(n.Name).Get(n.T.Context(), service, metav1.GetOptions{})
	must.Do(n.T, err)
	return s.Spec.ClusterIP
}
