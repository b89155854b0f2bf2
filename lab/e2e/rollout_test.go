//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"
)

// ways are how the pods of a rollout may be made.
var ways = []struct {
	name        string
	labels      map[string]string
	annotations map[string]string
	clean       bool // nothing may be lost
}{
	{name: "lastcall", clean: true},
	{name: "lastcall with Envoy", annotations: map[string]string{"lastcall.dev/proxy": "envoy"}, clean: true},
	{name: "as Istio by default", annotations: map[string]string{"lastcall.dev/compat": "istio", "lastcall.dev/sidecar": "classic"}},
	{name: "bare pods", labels: map[string]string{}},
}

// TestRollout replaces 4 replicas under 300 requests/s of mixed durations, until 10,000 requests have been made.
func TestRollout(t *testing.T) {
	const rate, requests, name = 300, 10_000, "web"
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			n := newNamespace(t, way.labels)
			n.apply(app{name: name, replicas: 4, annotations: way.annotations}.manifest())
			n.available(name)
			url := n.gateway(name)
			ctx, stop := context.WithTimeout(t.Context(), requests*time.Second/rate+time.Second)
			defer stop()
			loaded := make(chan *result)
			go func() { loaded <- load(ctx, url, rate) }()
			rollouts := n.restartUntil(ctx, name)
			r := <-loaded
			t.Logf("%s: %v; %d rollouts, %.1f s each", way.name, r, len(rollouts), mean(rollouts).Seconds())
			if way.clean && r.failed() > 0 || r.requests < requests {
				t.Errorf("%v; want none of at least %d", r, requests)
			}
		})
	}
}

// TestRestartLoop restarts the deployment again and again under 100 requests/s. A minute of it here; 600 s are recorded
// in BENCHMARKS.md (make e2e ARGS="-run TestRestartLoop -restart-loop 600s").
func TestRestartLoop(t *testing.T) {
	const rate, name = 100, "web"
	took := map[string]time.Duration{}
	for _, way := range ways {
		if way.name != "lastcall" && way.name != "bare pods" {
			continue
		}
		n := newNamespace(t, way.labels)
		n.apply(app{name: name, replicas: 4, annotations: way.annotations}.manifest())
		n.available(name)
		url := n.gateway(name)
		ctx, stop := context.WithTimeout(t.Context(), *full)
		defer stop()
		loaded := make(chan *result)
		go func() { loaded <- load(ctx, url, rate) }()
		rollouts := n.restartUntil(ctx, name)
		r := <-loaded
		took[way.name] = mean(rollouts)
		t.Logf("%s: %v in %v; %d rollouts, %.2f s each", way.name, r, *full, len(rollouts), mean(rollouts).Seconds())
		if way.clean && r.failed() > 0 {
			t.Errorf("%v; want none", r)
		}
		n.kubectl("delete", "deployment", name, "--wait=false")
	}
	t.Logf("a rollout takes %.2f times as long as one of bare pods", took["lastcall"].Seconds()/took["bare pods"].Seconds())
}

// restartUntil restarts a deployment until ctx ends, and returns how long each rollout took that was complete by then.
func (n *namespace) restartUntil(ctx context.Context, deployment string) (took []time.Duration) {
	n.t.Helper()
	for ctx.Err() == nil {
		began := time.Now()
		n.kubectl("rollout", "restart", "deployment", deployment)
		n.available(deployment)
		if ctx.Err() == nil {
			took = append(took, time.Since(began))
		}
	}
	return took
}

func mean(all []time.Duration) (sum time.Duration) {
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(max(1, len(all)))
}
