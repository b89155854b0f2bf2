//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// onZero are annotations with Istio's EXIT_ON_ZERO_ACTIVE_CONNECTIONS.
func onZero(annotations ...string) map[string]string {
	out := lastcall(annotations...)
	out["proxy.istio.io/config"] = "proxyMetadata:\n  EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true'\n"
	return out
}

// TestPublishedExperiment is the experiment of the guides: httpbin behind a gateway, a request that takes 10 s, and at
// once
//
//	kubectl scale deployment graceful-shutdown-app --replicas=0
//
// Without EXIT_ON_ZERO_ACTIVE_CONNECTIONS it is cut after Istio's 5 s, with it it is answered.
func TestPublishedExperiment(t *testing.T) {
	t.Parallel()
	const name = "graceful-shutdown-app"
	for _, row := range []struct {
		name        string
		labels      map[string]string // of the namespace
		annotations map[string]string
		want        string
		from        time.Duration // when the answer comes, at the earliest
	}{
		// gunicorn finishes what it has begun: it is the sidecar that breaks it in the next rows.
		{"without a sidecar", map[string]string{}, nil, "200", 10 * time.Second},
		{"pipe, as Istio by default", nil, lastcall("compat", "istio", "sidecar", "classic"), "503", 4 * time.Second},
		{"pipe, exit on zero", nil, onZero(), "200", 10 * time.Second},
		{"pipe, exit on zero, classic sidecar", nil, onZero("sidecar", "classic"), "200", 10 * time.Second},
		{"Envoy, as Istio by default", nil, lastcall("proxy", "envoy", "compat", "istio", "sidecar", "classic"), "503", 4 * time.Second},
		{"Envoy, exit on zero", nil, onZero("proxy", "envoy"), "200", 10 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, row.labels)
			n.Apply(app{name: name, image: "local/httpbin:" + *tag, annotations: row.annotations}.manifest())
			n.Available(name)
			pod := n.pods(name)[0]
			url := n.gateway(name)

			began := time.Now()
			answered := nodetest.CurlHead(t, url+"/delay/10")
			n.Kubectl("scale", "deployment", name, "--replicas=0")
			status := <-answered
			took := time.Since(began)
			t.Logf("%s after %.1f s", status, took.Seconds())
			if !strings.Contains(status, " "+row.want) || took < row.from {
				t.Errorf("%s after %v; want %s after at least %v", status, took, row.want, row.from)
			}
			n.gone(pod)
		})
	}
}
