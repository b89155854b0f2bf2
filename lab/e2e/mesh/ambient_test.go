//go:build e2e

package mesh

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAmbient lets a pod of Istio's ambient mesh end during a request of 10 s, with five idle connections: from a pod in
// the mesh, by HBONE, and from this machine, whose connections istio-cni gives the address of the kubelet's probes. It
// needs istio-cni and ztunnel on the node, which mesh-up does not install, because ztunnel is not a Go module.
func TestAmbient(t *testing.T) {
	for _, name := range []string{"istio-cni-node", "ztunnel"} {
		if _, err := client.AppsV1().DaemonSets("istio-system").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Skipf("the node is not in an ambient mesh (Istio's charts istio-cni and ztunnel): %v", err)
		}
	}
	f := form{name: "lastcall, ambient", labels: map[string]string{"istio.io/dataplane-mode": "ambient", "lastcall.dev/inject": "true"}}
	for _, inside := range []bool{false, true} {
		s := scene{form: f, kind: "http1", inside: inside, hold: 10 * time.Second}
		t.Run(s.String(), func(t *testing.T) {
			n := newNamespace(t, f.labels)
			n.noSecondProxy(f)
			if inside {
				n.Apply(strict) // ztunnel refuses plaintext
				n.inside()
			}
			var all []ending
			for range *runs {
				e := n.perform(s)
				t.Logf("%+v", e)
				if e.Error != "" || e.Lost > 0 || !e.AppSignalled {
					t.Errorf("cut: %q after %.1f s, app got SIGTERM: %v", e.Error, e.Answered, e.AppSignalled)
				}
				if limit := s.hold.Seconds() + 8; e.Gone > limit {
					t.Errorf("gone after %.1f s: want less than %.0f s; idle connections and HBONE tunnels must not hold it", e.Gone, limit)
				}
				all = append(all, e)
			}
			record(t, head, row(s.String(), all))
		})
	}
}

// noSecondProxy asserts that istio-cni redirects a pod of the form, and that lastcall has added neither a proxy nor a
// redirect.
func (n *namespace) noSecondProxy(f form) {
	n.T.Helper()
	n.Apply(f.deployment("shape", 1))
	n.Available("shape")
	pods, err := client.CoreV1().Pods(n.Name).List(n.T.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) != 1 {
		n.T.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	p := pods.Items[0]
	if p.Annotations["ambient.istio.io/redirection"] != "enabled" {
		n.T.Errorf("istio-cni does not redirect the pod: %v", p.Annotations)
	}
	app := p.Spec.Containers[0]
	if len(p.Spec.Containers) != 1 || app.Lifecycle == nil || app.Lifecycle.PreStop == nil || app.Lifecycle.PreStop.Exec == nil ||
		!slices.Contains(app.Lifecycle.PreStop.Exec.Command, "--ports") {
		n.T.Errorf("want one container, with a hook by sockets: %+v", p.Spec.Containers)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil || c.SecurityContext != nil && c.SecurityContext.Capabilities != nil && len(c.SecurityContext.Capabilities.Add) > 0 {
			n.T.Errorf("init container %s is a sidecar, or may redirect: %+v", c.Name, c)
		}
	}
	if err := client.AppsV1().Deployments(n.Name).Delete(n.T.Context(), "shape", metav1.DeleteOptions{}); err != nil {
		n.T.Fatal(err)
	}
	n.Until("had ended that pod", func() error {
		list, err := client.CoreV1().Pods(n.Name).List(n.T.Context(), metav1.ListOptions{})
		if err == nil && slices.ContainsFunc(list.Items, func(other corev1.Pod) bool { return other.UID == p.UID }) {
			err = errors.New("it is there")
		}
		return err
	})
}
