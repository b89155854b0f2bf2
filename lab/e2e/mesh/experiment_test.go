//go:build e2e

package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// experiment is the app of the published experiment.
const experiment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: graceful-shutdown-app}
spec:
  replicas: 1
  selector: {matchLabels: {app: graceful-shutdown-app}}
  template:
    metadata:
      labels: {app: graceful-shutdown-app}
      annotations: {%[1]s}
    spec:
      dnsPolicy: Default
      containers:
      - name: app
        image: local/httpbin:%[2]s
        imagePullPolicy: Never
        ports: [{containerPort: 8080, name: http}]
        readinessProbe: {httpGet: {path: /get, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: graceful-shutdown-app}
spec:
  selector: {app: graceful-shutdown-app}
  ports: [{name: http, port: 80, targetPort: http}]
`

// ingress is the address of Istio's ingress gateway.
func ingress(t *testing.T) string {
	t.Helper()
	s, err := client.CoreV1().Services("istio-ingress").Get(t.Context(), "istio-ingressgateway", metav1.GetOptions{})
	must.Do(t, err)
	return s.Spec.ClusterIP
}

// TestPublishedExperiment is the experiment of the guides, word for word: a namespace labelled istio-injection=enabled,
// httpbin with the guide's annotation, Istio's ingress gateway, a request of 10 s by curl -I, and at once
//
//	kubectl scale deployment graceful-shutdown-app --replicas=0
//
// Without the annotation the client gets a 503 after Istio's 5 s, with it a 200. The other rows are not in the guides:
// STRICT mTLS, native sidecars, and lastcall.
func TestPublishedExperiment(t *testing.T) {
	guide := exitOnZero.annotations
	for _, row := range []struct {
		name        string
		labels      map[string]string
		annotations map[string]string
		strict      bool
		want        string
		from        time.Duration // when the response comes, at the earliest
	}{
		{name: "Istio, classic", labels: byIstio, annotations: istioClassic.annotations, want: "503", from: 4 * time.Second},
		{name: "Istio, EXIT_ON_ZERO", labels: byIstio, annotations: guide, want: "200", from: 10 * time.Second},
		{name: "Istio, EXIT_ON_ZERO, STRICT", labels: byIstio, annotations: guide, strict: true, want: "200", from: 10 * time.Second},
		// gunicorn finishes its requests after SIGTERM, and a native sidecar ends after it.
		{name: "Istio, native", labels: byIstio, annotations: istioNative.annotations, want: "200", from: 10 * time.Second},
		{name: "lastcall, classic", labels: byBoth, annotations: classic.annotations, want: "200", from: 10 * time.Second},
		{name: "lastcall, classic, STRICT", labels: byBoth, annotations: classic.annotations, strict: true, want: "200", from: 10 * time.Second},
		{name: "lastcall, native", labels: byBoth, annotations: native.annotations, want: "200", from: 10 * time.Second},
		{name: "lastcall, native, STRICT", labels: byBoth, annotations: native.annotations, strict: true, want: "200", from: 10 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, row.labels)
			var annotations []string
			for name, value := range row.annotations {
				annotations = append(annotations, fmt.Sprintf("%s: %q", name, value))
			}
			manifest := fmt.Sprintf(experiment, strings.Join(annotations, ", "), *tag)
			if row.strict {
				manifest += strict
			}
			n.Apply(manifest)
			n.Available("graceful-shutdown-app")
			at, host := n.edge("graceful-shutdown-app", 80)
			n.Until("was served by the gateway", func() error {
				return get(t.Context(), n.from(false), at+"/get", host)
			})
			pod := n.podOf("graceful-shutdown-app")
			w := watch(t, &pod)
			began := time.Now()
			answered := nodetest.CurlHead(t, "-H", "Host: "+host, at+"/delay/10")
			n.Kubectl("scale", "deployment", "graceful-shutdown-app", "--replicas=0")
			scaled := time.Now()
			status := <-answered
			took := time.Since(began)
			w.running.Wait()
			record(t, "| published experiment | response | after | pod's processes ended, after the scaling |\n|---|---|---|---|",
				fmt.Sprintf("| %s | %s | %.1f s | %.1f s |", row.name, status, took.Seconds(), time.Since(scaled).Seconds()))
			if !strings.Contains(status, " "+row.want) || took < row.from {
				t.Errorf("%s after %v; want %s after at least %v", status, took, row.want, row.from)
			}
		})
	}
}

// podOf returns the one pod of an app that is not being deleted.
func (n *namespace) podOf(app string) (pod corev1.Pod) {
	n.T.Helper()
	n.Until("had one pod of "+app, func() error {
		list, err := client.CoreV1().Pods(n.Name).List(n.T.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		alive := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(alive) != 1 {
			return fmt.Errorf("%d pods", len(alive))
		}
		pod = alive[0]
		return nil
	})
	return pod
}
