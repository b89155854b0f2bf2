//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"
)

const exitOnZero = "proxyMetadata:\n  EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true'\n"

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
		{
			name: "without a sidecar", labels: map[string]string{},
			// gunicorn finishes what it has begun: it is the sidecar that breaks it in the next rows.
			want: "200", from: 10 * time.Second,
		},
		{
			name: "pipe, as Istio by default", annotations: map[string]string{"lastcall.dev/compat": "istio", "lastcall.dev/sidecar": "classic"},
			want: "503", from: 4 * time.Second,
		},
		{
			name: "pipe, exit on zero", annotations: map[string]string{"proxy.istio.io/config": exitOnZero},
			want: "200", from: 10 * time.Second,
		},
		{
			name: "pipe, exit on zero, classic sidecar", annotations: map[string]string{"proxy.istio.io/config": exitOnZero, "lastcall.dev/sidecar": "classic"},
			want: "200", from: 10 * time.Second,
		},
		{
			name:        "Envoy, as Istio by default",
			annotations: map[string]string{"lastcall.dev/proxy": "envoy", "lastcall.dev/compat": "istio", "lastcall.dev/sidecar": "classic"},
			want:        "503", from: 4 * time.Second,
		},
		{
			name:        "Envoy, exit on zero",
			annotations: map[string]string{"lastcall.dev/proxy": "envoy", "proxy.istio.io/config": exitOnZero},
			want:        "200", from: 10 * time.Second,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, row.labels)
			n.Apply(app{name: name, image: "local/httpbin:" + *tag, annotations: row.annotations}.manifest())
			n.Available(name)
			pod := n.pods(name)[0]
			url := n.gateway(name)

			answered := make(chan struct{})
			var status string
			var took time.Duration
			go func() {
				defer close(answered)
				status, took = curl(t, url+"/delay/10")
			}()
			n.requestBegan(url)
			n.Kubectl("scale", "deployment", name, "--replicas=0")
			<-answered
			t.Logf("%s after %.1f s", status, took.Seconds())
			if !strings.Contains(status, " "+row.want) || took < row.from {
				t.Errorf("%s after %v; want %s after at least %v", status, took, row.want, row.from)
			}
			n.gone(pod)
		})
	}
}
