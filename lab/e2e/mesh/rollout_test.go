//go:build e2e

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
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
func get(ctx context.Context, dial dialer, url, host string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Host = host
	if why := loadtest.Send(&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, request); why != "" {
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
	asks := []struct {
		from      dialer
		url, host string
	}{{n.from(false), url, host}, {n.from(true), "http://" + n.clusterIP("web") + ":8080", ""}}
	n.Until("was served", func() (err error) {
		for _, a := range asks {
			err = errors.Join(err, get(n.T.Context(), a.from, a.url+"/get", a.host))
		}
		return err
	})
	var loads [2]*loadtest.Load
	var loading sync.WaitGroup
	ctx, stop := context.WithCancel(n.T.Context())
	defer stop()
	for i, a := range asks {
		loading.Go(func() { loads[i] = load(ctx, a.from, a.url, a.host, rate) })
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
	stop()
	loading.Wait()
	return loads[0], loads[1], took
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
