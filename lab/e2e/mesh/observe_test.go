//go:build e2e

package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/losses"
	"github.com/lastcall-dev/lastcall/kube/observe"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// crowded is what lab/e2e/talk's crowd has counted.
type crowded struct{ Lost, Refused, Answered, Failed int }

const observeHead = "| pod | clients | lost | answered with an error | refused | by the observer | verdict | proxy |\n|---|---|---|---|---|---|---|---|"

// TestObserve compares the observer's report of pods in a mesh, and of one that is not, with what clients count that are
// outside the mesh. Their requests in flight are counted exactly; late clients meet an app that has ended, or nothing.
func TestObserve(t *testing.T) {
	nodetest.Observer(t, "../../..", *tag, patience)
	t.Run("hostNetwork", hostNetwork)
	outside := newNamespace(t, nil)
	outside.inside()
	bare := form{name: "bare"}
	for _, tt := range []struct {
		form
		late  int
		proxy string
	}{
		{bare, 0, "none"},
		{istioNative, 0, "istio"},
		{istioClassic, 0, "istio"},
		{istioNative, 20, "istio"},
		{istioClassic, 20, "istio"},
		{native, 20, "istio-hook"},
		{classic, 20, "istio-hook"},
	} {
		t.Run(fmt.Sprintf("%s/%d late", tt.name, tt.late), func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, tt.labels)
			n.Apply("apiVersion: v1\nkind: Pod\n" + strings.Replace(tt.template(0), "metadata:\n", "metadata:\n  name: web\n", 1))
			p := n.ready("web")
			const busy = 8
			clients := (&namespace{&nodetest.Namespace{T: t, Name: outside.Name, Client: client, Patience: patience}}).talk(true, "crowd",
				"-target", p.Status.PodIP, "-busy", fmt.Sprint(busy), "-late", fmt.Sprint(tt.late), "-hold", "6s")
			clients.begun()
			n.Until("had the requests", func() error {
				log, err := client.CoreV1().Pods(n.Name).GetLogs("web", &corev1.PodLogOptions{Container: "app"}).DoRaw(t.Context())
				if got := strings.Count(string(log), "begin "); err == nil && got != busy {
					err = fmt.Errorf("%d of %d", got, busy)
				}
				return err
			})
			if err := client.CoreV1().Pods(n.Name).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			var c crowded
			if err := clients.result(&c, true); err != nil {
				t.Fatal(err)
			}
			r := n.Observed(p)
			record(t, observeHead, fmt.Sprintf("| %s | %d busy, %d late | %d | %d | %d | %s | %s | %s |", tt.name, busy, tt.late, c.Lost, c.Failed, c.Refused,
				r.Summary(), r.Verdict, r.Proxy))
			tt.compare(t, c, r, tt.late == 0)
			if r.Proxy != tt.proxy {
				t.Errorf("proxy %q; want %q", r.Proxy, tt.proxy)
			}
		})
	}
}

// compare wants the observer's numbers to be the clients', exactly if none came late: probes of the kubelet are refused as
// late clients are.
func (f form) compare(t *testing.T, c crowded, r observe.Termination, isExact bool) {
	t.Helper()
	lost := c.Lost + c.Failed
	if got := r.Traffic.Lost.Reset + r.Traffic.Lost.Unanswered; isExact && got != lost {
		t.Errorf("the observer counted %d lost requests, the clients %d: %+v", got, lost, r.Traffic)
	}
	if isLost := lost+c.Refused > 0; r.Verdict == losses.Clean && isLost || r.Verdict == losses.Lost && !isLost {
		t.Errorf("verdict %s: clients lost %d, refused %d: %+v", r.Verdict, lost, c.Refused, r.Traffic)
	}
	if f.whole && lost > 0 {
		t.Errorf("clients lost %d", lost)
	}
}

// hostNetwork: a pod with the node's network is left out, with the reason.
func hostNetwork(t *testing.T) {
	n := newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})
	n.Apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers: [{name: app, image: "local/talk:%s", imagePullPolicy: Never, args: [rest]}]
`, *tag))
	p := n.ready("web")
	if err := client.CoreV1().Pods(n.Name).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := n.Observed(p); r.Verdict != losses.Unknown || !slices.Equal(r.Unknown, []string{observe.UnknownHostNetwork}) {
		t.Errorf("%+v", r)
	}
}
