//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// patience is how long anything may take that is to come soon.
const patience = 90 * time.Second

// The cluster that all tests share.
var (
	config *rest.Config
	client *kubernetes.Clientset
	tag    = flag.String("tag", "", "`tag` of the images in the cluster (set by make e2e)")
	full   = flag.Duration("restart-loop", 0, "how long pods are restarted under load, at least; 0: not at all")

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
	if config, client, err = nodetest.Connect("make cluster-up"); err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Get(context.Background(), "node", metav1.GetOptions{})
	return err
}

func install() error {
	return nodetest.Install("../..", *tag, patience, "sidecar.envoyImage=localhost/lastcall-envoy:"+*tag)
}

// namespace is one test's own.
type namespace struct{ *nodetest.Namespace }

// newNamespace makes one in which pods get a sidecar, unless labels say another.
func newNamespace(t *testing.T, labels map[string]string) *namespace {
	t.Helper()
	if labels == nil {
		labels = map[string]string{"lastcall.dev/inject": "true"}
	}
	return &namespace{nodetest.New(t, client, patience, "e2e", labels)}
}

// existing is one that the test has not made.
func existing(t *testing.T, name string) *namespace {
	return &namespace{&nodetest.Namespace{T: t, Name: name, Client: client, Patience: patience}}
}

// pods of an app that are not being deleted.
func (n *namespace) pods(app string) []corev1.Pod {
	n.T.Helper()
	list, err := client.CoreV1().Pods(n.Name).List(n.T.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	must.Do(n.T, err)
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
	n.T.Helper()
	n.ends([]corev1.Pod{p})
}
