//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// ways are how the pods of a rollout may be made.
var ways = []struct {
	name        string
	labels      map[string]string
	annotations map[string]string
	more        string // of the app's container
	clean       bool   // nothing may be lost
}{
	{name: "lastcall", clean: true},
	{name: "lastcall, classic", annotations: map[string]string{"lastcall.dev/sidecar": "classic"}, clean: true},
	{name: "lastcall, and a preStop sleep of the app's own", more: preStop(5), clean: true},
	{name: "lastcall with Envoy", annotations: map[string]string{"lastcall.dev/proxy": "envoy"}, clean: true},
	{name: "as Istio by default", annotations: map[string]string{"lastcall.dev/compat": "istio", "lastcall.dev/sidecar": "classic"}},
	{name: "bare pods", labels: map[string]string{}},
}

// TestRollout replaces 4 replicas under 300 requests/s of mixed durations, until 10,000 requests have been made.
func TestRollout(t *testing.T) {
	const rate, requests, name = 300, 10_000, "web"
	for _, way := range ways {
		if !way.clean && !compares(t, way.name) {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			n := newNamespace(t, way.labels)
			n.Apply(app{name: name, replicas: 4, annotations: way.annotations, more: way.more}.manifest())
			n.Available(name)
			url := n.gateway(name)
			ctx, stop := context.WithTimeout(t.Context(), requests*time.Second/rate+time.Second)
			defer stop()
			end := begin(ctx, url, rate)
			rollouts := n.restartUntil(func(int) bool { return ctx.Err() != nil }, 0, name)
			r := end()
			t.Logf("%s: %v; %d rollouts, %.1f s each", way.name, r, len(rollouts), mean(rollouts).Seconds())
			if way.clean && r.Failed() > 0 || r.Requests < requests {
				t.Errorf("%v; want none of at least %d", r, requests)
			}
		})
	}
}

// TestRestartLoop restarts the deployment again and again under 100 requests/s, for -restart-loop: 600 s every night and in
// BENCHMARKS.md (make e2e ARGS="-run TestRestartLoop -restart-loop 600s"); TestRollout has half a minute of it. The long run,
// of lastcall's pods alone, whose rollouts begin at equal intervals: -run TestRestartLoop/lastcall -restarts 100
// -requests 1000000 -rate 500.
func TestRestartLoop(t *testing.T) {
	if *full == 0 && *loopRestarts == 0 && *loopRequests == 0 {
		t.Skip("-restart-loop is not set")
	}
	const name = "web"
	least := max(*full, time.Duration(*loopRequests)*time.Second/time.Duration(*loopRate)+time.Second)
	every := time.Duration(0)
	if *loopRestarts > 0 {
		every = least / time.Duration(*loopRestarts)
	}
	took := map[string]time.Duration{}
	for _, way := range ways {
		if way.name != "lastcall" && way.name != "bare pods" {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			n := newNamespace(t, way.labels)
			n.Apply(app{name: name, replicas: 4, annotations: way.annotations}.manifest())
			n.Available(name)
			url := n.gateway(name)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			loaded := make(chan *loadtest.Load, 1)
			began := time.Now()
			go func() { loaded <- load(ctx, url, *loopRate) }()
			rollouts := n.restartUntil(func(made int) bool { return len(loaded) > 0 || made >= *loopRestarts && time.Since(began) >= least }, every, name)
			stop()
			r := <-loaded
			took[way.name] = mean(rollouts)
			t.Logf("| pods | lost | of | requests/s | rollouts | each took |\n|---|---:|---:|---:|---:|---:|\n| %s | %d | %d | %d | %d | %.2f s |\n%v in %v",
				way.name, r.Failed(), r.Requests, *loopRate, len(rollouts), mean(rollouts).Seconds(), r, time.Since(began).Round(time.Second))
			if way.clean && r.Failed() > 0 {
				t.Errorf("%v; want none", r)
			}
			n.Kubectl("delete", "deployment", name, "--wait=false")
		})
	}
	if bare := took["bare pods"]; bare > 0 && took["lastcall"] > 0 {
		t.Logf("a rollout takes %.2f times as long as one of bare pods", took["lastcall"].Seconds()/bare.Seconds())
	}
}

// restartUntil restarts a deployment until enough reports so of the number of rollouts, and returns how long each took that
// was complete by then. A rollout begins when the one before is complete, and not sooner than every after its beginning.
func (n *namespace) restartUntil(enough func(made int) bool, every time.Duration, deployment string) (took []time.Duration) {
	n.T.Helper()
	for next := time.Now(); !enough(len(took)); next = next.Add(every) {
		time.Sleep(time.Until(next))
		began := time.Now()
		n.Kubectl("rollout", "restart", "deployment", deployment)
		n.Available(deployment)
		if !enough(len(took)) {
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
