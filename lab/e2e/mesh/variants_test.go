//go:build e2e

package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// TestOtherPorts has the ports of Envoy's admin API and of Istio's agent changed by annotation.
func TestOtherPorts(t *testing.T) {
	for _, f := range []form{classic, native} {
		s := scene{kind: "http1", hold: 8 * time.Second, form: f.with("other ports", map[string]string{
			"status.sidecar.istio.io/port": "15520", proxyConfig: "proxyAdminPort: 15600\n",
		})}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			newNamespace(t, f.labels).measure(s)
		})
	}
}

// TestShortGrace has a conversation that takes longer than the grace period of 12 s: the app gets its SIGTERM, and the
// client a response, before SIGKILL.
func TestShortGrace(t *testing.T) {
	for _, f := range []form{classic, native} {
		for _, kind := range []string{"http1", "http2", "grpc", "websocket"} {
			s := scene{form: f, kind: kind, hold: 30 * time.Second, grace: 12}
			t.Run(s.String(), func(t *testing.T) {
				t.Parallel()
				n := newNamespace(t, f.labels)
				e := n.perform(s)
				t.Logf("%+v", e)
				record(t, head, row(s.String()+", grace 12 s", []ending{e}))
				if e.Error == "" {
					t.Error("a conversation of 30 s was complete in a grace period of 12 s")
				}
				// The kubelet counts from its call of the hooks, which a busy machine delays.
				if left := e.Answered - e.HookStart; e.HookStart < 0 || left > 12 {
					t.Errorf("the client was cut %.1f s after the hook began: by SIGKILL", left)
				}
				if kind == "http1" && !strings.HasPrefix(e.Error, "503") {
					t.Errorf("the client got %q; want a 503", e.Error)
				}
				if !e.AppSignalled {
					t.Error("the app did not get SIGTERM: it was killed")
				}
			})
		}
	}
}

// TestLastcallFirst has the API server call lastcall's webhook before Istio's: it calls them in the order of their
// names, and lastcall's again after a change by another. In all other tests Istio's is called first.
func TestLastcallFirst(t *testing.T) {
	const label = "first.lastcall.dev/inject"
	hooks := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	installed, err := hooks.Get(t.Context(), nodetest.Webhook, metav1.GetOptions{})
	must.Do(t, err)
	first := &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a-lastcall-first"}, Webhooks: installed.Webhooks[:1]}
	first.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
	if _, err := hooks.Create(t.Context(), first, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), first.Name, metav1.DeleteOptions{}) })
	for _, f := range []form{classic, native} {
		t.Run(f.name, func(t *testing.T) {
			second := f
			second.labels = map[string]string{"istio-injection": "enabled", label: "true"}
			var want, got string
			for _, order := range []struct {
				form
				hooks *string
			}{{f, &want}, {second, &got}} {
				n := newNamespace(t, order.labels)
				n.Apply(order.deployment("web", 1) + service)
				n.Available("web")
				pod := n.podOf("web")
				*order.hooks = hooksOf(&pod)
			}
			if want != got || !strings.Contains(got, "wait --envoy") {
				t.Errorf("with lastcall's webhook first the pod has:\n%s\nwith Istio's first:\n%s", got, want)
			}
			s := scene{form: second.with("lastcall's webhook first", nil), kind: "http1", inside: true, hold: 8 * time.Second}
			newNamespace(t, second.labels).measure(s)
		})
	}
}

// hooksOf are the commands that end the containers of a pod, and Istio's settings of it.
func hooksOf(p *corev1.Pod) string {
	var out []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		line := c.Name + ":"
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Exec != nil {
			line += " " + strings.Join(c.Lifecycle.PreStop.Exec.Command, " ")
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, "\n") + "\n" + p.Annotations[proxyConfig]
}

// TestTakenAway removes lastcall's label from a namespace and restarts its pods: they are as in a namespace that never
// had it.
func TestTakenAway(t *testing.T) {
	for _, f := range []form{classic, native} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			never := newNamespace(t, byIstio)
			never.Apply(f.deployment("web", 1) + service)
			n := newNamespace(t, byBoth)
			n.Apply(f.deployment("web", 1) + service)
			n.Available("web")
			if pod := n.podOf("web"); !strings.Contains(hooksOf(&pod), "wait --envoy") {
				t.Fatalf("the pod was not injected:\n%s", hooksOf(&pod))
			}
			n.Kubectl("label", "namespace", n.Name, "lastcall.dev/inject-")
			n.Kubectl("rollout", "restart", "deployment", "web")
			n.Available("web")
			never.Available("web")
			pod, plain := n.podOf("web"), never.podOf("web")
			text, err := json.Marshal([]any{pod.Annotations, pod.Labels, pod.Spec})
			must.Do(t, err)
			if strings.Contains(string(text), "lastcall") {
				t.Errorf("a trace of lastcall: %s", text)
			}
			if got, want := shape(&pod), shape(&plain); got != want {
				t.Errorf("the pod has:\n%s\nin a namespace without lastcall:\n%s", got, want)
			}
		})
	}
}

// shape has the parts that a webhook adds to a pod: containers with their commands and mounts, volumes, names of
// annotations.
func shape(p *corev1.Pod) string {
	var out strings.Builder
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		fmt.Fprintf(&out, "%s %s %v %v", c.Name, c.Image, c.Command, c.Args)
		for _, m := range c.VolumeMounts {
			if !strings.HasPrefix(m.Name, "kube-api-access") {
				fmt.Fprintf(&out, " %s=%s", m.Name, m.MountPath)
			}
		}
		fmt.Fprintln(&out)
	}
	fmt.Fprintln(&out, len(p.Spec.Volumes), hooksOf(p))
	for _, name := range slices.Sorted(maps.Keys(p.Annotations)) {
		if name != "kubectl.kubernetes.io/restartedAt" {
			fmt.Fprintln(&out, name)
		}
	}
	return out.String()
}
