//go:build e2e

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// edge routes a host name of the namespace through Istio's ingress gateway to a Service.
func (n *namespace) edge(service string, port int) (url, host string) {
	n.T.Helper()
	host = n.Name + ".example"
	n.Apply(fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [%[1]s]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge}
spec:
  hosts: [%[1]s]
  gateways: [edge]
  http: [{route: [{destination: {host: %[2]s, port: {number: %[3]d}}}]}]
`, host, service, port))
	return "http://" + ingress(n.T), host
}

// get asks once.
func get(ctx context.Context, url, host string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Host = host
	if why := loadtest.Send(&http.Client{Timeout: 5 * time.Second}, request); why != "" {
		return errors.New(why)
	}
	return nil
}

// underLoad restarts a deployment of a form with 4 replicas -rollouts times while clients inside and outside the mesh ask at a
// rate each, and returns what they lost and how long each rollout took.
func (n *namespace) underLoad(f form, mTLS bool, rate int) (outside, inside *loadtest.Load, took []time.Duration) {
	n.T.Helper()
	manifest := f.deployment("web", 4) + service
	if mTLS {
		manifest += strict
	}
	n.Apply(manifest)
	n.Available("web")
	n.inside()
	url, host := n.edge("web", 8080)
	n.Until("was served by the gateway", func() error {
		_, err := nodetest.Kubectl("", "exec", "--namespace", n.Name, "client", "--container", "client", "--", "/talk", "ask", "-kind", "http1", "-hold", "10ms", "-target", n.clusterIP("web"))
		if err != nil {
			return err
		}
		return get(n.T.Context(), url+"/get", host)
	})
	clients := []*talking{
		n.talk(false, "load", "-url", url, "-host", host, "-rate", fmt.Sprint(rate)),
		n.talk(true, "load", "-url", "http://"+n.clusterIP("web")+":8080", "-rate", fmt.Sprint(rate)),
	}
	for _, c := range clients {
		c.begun()
	}
	for range *rollouts {
		began := time.Now()
		n.Kubectl("rollout", "restart", "deployment", "web")
		n.Available("web")
		n.Until("had ended its old pods", func() error {
			list, err := client.CoreV1().Pods(n.Name).List(n.T.Context(), metav1.ListOptions{LabelSelector: "app=web"})
			if err == nil && len(list.Items) != 4 {
				err = fmt.Errorf("%d pods", len(list.Items))
			}
			return err
		})
		took = append(took, time.Since(began))
	}
	outside, inside = &loadtest.Load{}, &loadtest.Load{}
	for i, r := range []*loadtest.Load{outside, inside} {
		if err := clients[i].result(r, true); err != nil {
			n.T.Error(err)
		}
	}
	return outside, inside, took
}

const rolloutHead = "| form | client outside | client inside | rollouts | s each |\n|---|---|---|---|---|"

func rolloutRow(name string, outside, inside *loadtest.Load, took []time.Duration) string {
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	return fmt.Sprintf("| %s | %v | %v | %d | %.1f |", name, outside, inside, len(took), sum.Seconds()/float64(max(1, len(took))))
}

// TestRollout replaces 4 replicas under 80 requests/s of 20 ms to 8 s, half of them from a client outside the mesh, through
// Istio's ingress gateway, and half from one inside. Istio's own forms are measured; lastcall's must lose none.
func TestRollout(t *testing.T) {
	for _, f := range forms {
		for _, mTLS := range []bool{false, true} {
			name := f.name
			if mTLS {
				if !f.whole {
					continue
				}
				name += ", STRICT"
			}
			t.Run(name, func(t *testing.T) {
				n := newNamespace(t, f.labels)
				outside, inside, took := n.underLoad(f, mTLS, 40)
				record(t, rolloutHead, rolloutRow(name, outside, inside, took))
				if f.whole && outside.Failed()+inside.Failed() > 0 || outside.Requests == 0 || inside.Requests == 0 {
					t.Error("want no request lost")
				}
			})
		}
	}
}
