// Package nodetest has the common parts of the tests on a Kubernetes node: the connection to it, and a namespace for
// each test.
package nodetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll"
)

// Connect connects to the cluster of KUBECONFIG. start is the make target that starts it.
func Connect(start string) (*rest.Config, *kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, nil, fmt.Errorf("no cluster (%s): %w", start, err)
	}
	config.QPS, config.Burst = 500, 1000
	client, err := kubernetes.NewForConfig(config)
	return config, client, err
}

// Kubectl runs the real one. The error contains its output.
func Kubectl(stdin string, args ...string) (string, error) {
	cmd := exec.Command("kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// System is the namespace that lastcall is installed in, and Webhook its Deployment there.
const (
	System  = "lastcall-system"
	Webhook = "lastcall-webhook"
)

// Install has the chart put the webhook into the cluster, with images of a tag, and waits until it serves. top is the
// checkout's folder, values are the chart's.
func Install(top, tag string, patience time.Duration, values ...string) error {
	manifests, err := Chart(top, tag, System, values...)
	if err == nil {
		err = Release(System, "restricted", manifests)
	}
	if err == nil {
		_, err = Kubectl("", "rollout", "status", "deployment", Webhook, "--namespace", System,
			"--timeout", patience.String())
	}
	return err
}

// Chart renders the chart of the checkout in the folder top for a namespace, with images of a tag and the chart's
// values.
func Chart(top, tag, namespace string, values ...string) (manifests string, err error) {
	args := []string{"template", filepath.Join(top, "deploy/chart"), "--namespace", namespace, "--version", tag,
		"--set", "registry=localhost"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	out, err := exec.Command(filepath.Join(top, "bin/chart"), args...).Output()
	if err != nil {
		return "", fmt.Errorf("render the chart (make e2e and make e2e-mesh build bin/chart): %w", err)
	}
	return string(out), nil
}

// Release applies manifests in a namespace that it makes, with a level of the Pod Security Standards.
func Release(namespace, level, manifests string) error {
	made := "apiVersion: v1\nkind: Namespace\n" +
		"metadata: {name: " + namespace + ", labels: {pod-security.kubernetes.io/enforce: " + level + "}}\n"
	if _, err := Kubectl(made, "apply", "-f", "-"); err != nil {
		return err
	}
	_, err := Kubectl(manifests, "apply", "--namespace", namespace, "-f", "-")
	return err
}

// Await calls f until it returns no error, for patience.
func Await(patience time.Duration, what string, f func() error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if poll.Until(ctx, 100*time.Millisecond, func() bool { err = f(); return err == nil }) != nil {
		return fmt.Errorf("it never %s: %w", what, err)
	}
	return nil
}

// Namespace is one test's own.
type Namespace struct {
	T        *testing.T
	Name     string
	Client   *kubernetes.Clientset
	Patience time.Duration // bounds every wait for something that is expected soon
}

// New makes a namespace whose name begins with prefix; it is deleted when the test ends.
func New(t *testing.T, client *kubernetes.Clientset, patience time.Duration, prefix string,
	labels map[string]string) *Namespace {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: prefix + "-", Labels: labels, Annotations: map[string]string{"test": t.Name()},
	}}, metav1.CreateOptions{})
	must.Do(t, err)
	n := &Namespace{T: t, Name: made.Name, Client: client, Patience: patience}
	t.Cleanup(func() {
		if t.Failed() {
			n.Dump()
		}
		_ = client.CoreV1().Namespaces().Delete(context.Background(), n.Name, metav1.DeleteOptions{})
	})
	n.Until("has its account", func() error {
		_, err := client.CoreV1().ServiceAccounts(n.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return n
}

// Until calls f until it returns no error, and ends the test if it never does.
func (n *Namespace) Until(what string, f func() error) {
	n.T.Helper()
	must.Do(n.T, Await(n.Patience, what, f))
}

// Kubectl runs in this namespace; an error ends the test.
func (n *Namespace) Kubectl(args ...string) string {
	n.T.Helper()
	out, err := n.TryKubectl("", args...)
	must.Do(n.T, err)
	return out
}

// TryKubectl runs in this namespace.
func (n *Namespace) TryKubectl(stdin string, args ...string) (string, error) {
	return Kubectl(stdin, append([]string{"--namespace", n.Name}, args...)...)
}

// Apply applies manifests; an error ends the test.
func (n *Namespace) Apply(manifest string) {
	n.T.Helper()
	if _, err := n.TryKubectl(manifest, "apply", "-f", "-"); err != nil {
		n.T.Fatal(err)
	}
}

// Available waits until a deployment's pods all serve.
func (n *Namespace) Available(deployment string) {
	n.T.Helper()
	n.Kubectl("rollout", "status", "deployment", deployment, "--timeout", n.Patience.String())
}

// IsReady reports whether the pod serves.
func IsReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Ready waits until a pod is.
func (n *Namespace) Ready(name string) *corev1.Pod {
	n.T.Helper()
	n.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout", n.Patience.String())
	p, err := n.Client.CoreV1().Pods(n.Name).Get(n.T.Context(), name, metav1.GetOptions{})
	must.Do(n.T, err)
	return p
}

// CurlHead asks with curl -I, as the published experiment does, when the request has been sent. The status line comes
// later.
func CurlHead(t *testing.T, args ...string) (status <-chan string) {
	t.Helper()
	cmd := exec.Command("curl", append(strings.Fields("--silent --show-error --verbose -I --max-time 60"), args...)...)
	log, err := cmd.StderrPipe()
	must.Do(t, err)
	var out strings.Builder
	cmd.Stdout = &out
	must.Do(t, cmd.Start())
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "> HEAD") {
	}
	answered := make(chan string, 1)
	go func() {
		_, _ = io.Copy(io.Discard, log)
		err := cmd.Wait()
		line, _, _ := strings.Cut(out.String(), "\r\n")
		if err != nil {
			line += err.Error()
		}
		answered <- line
	}()
	return answered
}

// Dump logs the namespace of a failed test: objects, Events, the ends of logs.
func (n *Namespace) Dump() {
	for _, args := range [][]string{
		{"get", "all", "-o", "wide"},
		{"get", "events", "--sort-by", ".metadata.creationTimestamp"},
	} {
		out, _ := n.TryKubectl("", args...)
		lines := strings.Split(out, "\n")
		n.T.Logf("kubectl %s:\n%s", strings.Join(args, " "), strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
	list, err := n.Client.CoreV1().Pods(n.Name).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		n.T.Log(err)
		return
	}
	for _, p := range list.Items {
		out, _ := n.TryKubectl("", "logs", p.Name, "--all-containers", "--prefix", "--tail", "30")
		n.T.Logf("logs of %s:\n%s", p.Name, out)
	}
}
