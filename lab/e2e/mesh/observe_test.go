//go:build e2e

package mesh

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/observe"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

const observeHead = "| pod, clients | lost by clients | answered with an error | refused | by the observer | verdict | " +
	"proxy |\n|---|---|---|---|---|---|---|"

// TestObserve compares the observer's bounds with what clients count: outside the mesh (PERMISSIVE), or in it (STRICT).
// Late clients are outside: the proxy of others would repeat their requests.
func TestObserve(t *testing.T) {
	nodetest.Observer(t, "../../..", *tag, patience)
	t.Run("hostNetwork", hostNetwork)
	reports := nodetest.Follow(t, client)
	outside := newNamespace(t, nil)
	outside.inside()
	for _, tt := range []struct {
		form
		late   int
		strict bool
		proxy  string
	}{
		{form{name: "bare"}, 0, false, "none"},
		{istioNative, 0, false, "istio"},
		{istioClassic, 0, false, "istio"},
		{istioNative, 20, false, "istio"},
		{istioClassic, 20, false, "istio"},
		{istioNative, 0, true, "istio"},
		{istioClassic, 0, true, "istio"},
		{native, 20, false, "istio-hook"},
		{classic, 20, false, "istio-hook"},
		{native, 0, true, "istio-hook"},
		{classic, 0, true, "istio-hook"},
	} {
		name := fmt.Sprintf("%s, PERMISSIVE, %d late", tt.name, tt.late)
		if tt.strict {
			name = tt.name + ", STRICT"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, tt.labels)
			from := &namespace{&nodetest.Namespace{T: t, Name: outside.Name, Client: client, Patience: patience}}
			if tt.strict {
				from = n
				n.Apply(strict)
				n.inside()
			}
			for range *runs {
				lost, proxy, r := n.crowd(tt.form, from, reports, tt.late)
				record(t, observeHead, fmt.Sprintf("| %s | %s | %s | %s |", name, lost, r.Row(), proxy))
				if wrong := r.Wrong(lost.all()); wrong != "" {
					t.Errorf("%s: %s: clients lost %s:\n%s", wrong, name, lost, strings.Join(r.Lines, "\n"))
				}
				if tt.whole && lost.all() > 0 {
					t.Errorf("clients lost %s", lost)
				}
				if proxy != tt.proxy {
					t.Errorf("proxy %q; want %q", proxy, tt.proxy)
				}
			}
		})
	}
}

func (c *crowded) all() int { return c.Lost + c.Failed + c.Refused }

func (c *crowded) String() string { return fmt.Sprintf("%d | %d | %d", c.Lost, c.Failed, c.Refused) }

// crowd lets a pod end under the load of clients in a namespace, and returns what they lost.
func (n *namespace) crowd(f form, from *namespace, reports *nodetest.Reports, late int) (c *crowded, proxy string, r nodetest.Report) {
	n.T.Helper()
	n.Apply("apiVersion: v1\nkind: Pod\n" + strings.Replace(f.template(0), "metadata:\n", "metadata:\n  name: web\n", 1) + service)
	p := n.Ready("web")
	target := p.Status.PodIP
	if from == n {
		target = n.clusterIP("web")
	}
	const busy = 8
	dial := from.from(true)
	for range idleClients {
		idle(n.T, dial, target, 1)
	}
	c = new(crowded)
	var asking sync.WaitGroup
	for range busy {
		inFlight := begin(n.T, dial, target, "/delay/6")
		asking.Go(func() { c.receive(inFlight) })
	}
	n.Until("had the requests", func() error {
		log, err := client.CoreV1().Pods(n.Name).GetLogs("web", &corev1.PodLogOptions{Container: "app"}).DoRaw(n.T.Context())
		if got := strings.Count(string(log), "begin "); err == nil && got != busy {
			err = fmt.Errorf("%d of %d", got, busy)
		}
		return err
	})
	must.Do(n.T, client.CoreV1().Pods(n.Name).Delete(n.T.Context(), "web", metav1.DeleteOptions{}))
	c.late(late, dial, target, &asking)
	asking.Wait()
	r = reports.Of(n.T, p.UID, patience)
	n.Kubectl("wait", "--for=delete", "pod/web", "--timeout", patience.String())
	return c, n.Observed(p).Proxy, r
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
	p := n.Ready("web")
	must.Do(t, client.CoreV1().Pods(n.Name).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	if r := n.Observed(p); r.Verdict != advice.Unknown || !slices.Equal(r.Unknown, []string{observe.UnknownHostNetwork}) {
		t.Errorf("%+v", r)
	}
}
