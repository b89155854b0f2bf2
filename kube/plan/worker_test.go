package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/plan"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// TestWorker: a worker whose end waits for signals of its own has no clients, and no minimum drain but one that is
// set. With ports it serves as others do.
func TestWorker(t *testing.T) {
	hook := func(command string) string {
		return `spec: {containers: [{name: work, image: w, lifecycle: {preStop: {exec: {command: [/bin/lastcall, wait, ` + command + `]}}}}]}`
	}
	injected := func(annotations, spec string) string {
		return `metadata: {labels: {lastcall.dev/inject: "true"}, annotations: {lastcall.dev/until: "file:/idle"` + annotations + `}}, spec: {` + spec + `}`
	}
	const bare = "containers: [{name: work, image: w}]"
	for _, tt := range []struct{ name, template, want string }{ // new connections; until when an idle pod accepts; its signal
		{"by hand", hook(`--until, "file:/idle"`), "none 0s 0s, last call 25s"},
		{"in one word", hook(`"--until=file:/idle"`), "none 0s 0s, last call 25s"},
		{"two signals", hook(`--until, "exec:true", --until, "!file:/busy"`), "none 0s 0s, last call 25s"},
		{"a time of its own", hook(`--until, "file:/idle", --timeout, 12s`), "none 0s 0s, last call 12s"},
		{"a longer time, without a grace period", strings.Replace(hook(`--until, "file:/idle", --timeout, 50s`), "{containers", "{terminationGracePeriodSeconds: 60, containers", 1), "none 0s 0s, last call 50s"},
		{"a grace period by a flag", strings.Replace(hook(`--until, "file:/idle", --grace-period, 1m`), "{containers", "{terminationGracePeriodSeconds: 60, containers", 1), "none 0s 0s, last call 55s"},
		{"a minimum drain by a flag", hook(`--until, "file:/idle", --minimum-drain=3s`), "none 0s 3s, last call 25s"},
		{"with ports", hook(`--until, "file:/idle", --ports, "8080"`), "accepted 5s 5s, last call 25s"},
		{"with ports, in one word", hook(`"--until=file:/idle", "--ports=8080"`), "accepted 5s 5s, last call 25s"},
		{"by its variable", `spec: {containers: [{name: work, image: w, env: [{name: MINIMUM_DRAIN_DURATION, value: 4s}], ` + strings.TrimPrefix(hook(`--until, "file:/idle"`), "spec: {containers: [{name: work, image: w, "), "none 0s 4s, last call 25s"},
		{"injected", injected("", bare), "none 0s 0s, last call 25s"},
		{"injected, with a minimum drain", injected(", lastcall.dev/minimum-drain: 7s", bare), "none 0s 7s, last call 25s"},
		{"injected, with a port", injected("", "containers: [{name: work, image: w, ports: [{containerPort: 80}]}]"), "accepted 5s 5s, last call 25s"},
		{"injected, with a port for metrics, which the hook watches", injected("", "containers: [{name: work, image: w, ports: [{name: metrics, containerPort: 90}]}]"), "none 0s 5s, last call 25s"},
		{"injected, in Istio's mesh, whose Envoy the hook watches", strings.Replace(injected("", bare), "labels: {", `labels: {sidecar.istio.io/inject: "true", `, 1), "none 0s 5s, last call 25s"},
		{"injected, with a helper", injected("", "containers: [{name: work, image: w}, {name: logs, image: l}]"), "none 0s 0s, last call 25s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: work}\nspec: {template: {" + tt.template + "}}\n"
			workloads, unread := manifest.Serving([]*manifest.File{manifest.Parse("work.yaml", []byte(text))})
			if len(unread) > 0 {
				t.Fatal(unread)
			}
			p := plan.New("work", workloads[0].Pod, plan.Options{Request: 2 * time.Second, Propagation: 4 * time.Second})
			got := fmt.Sprintf("%s %v %v, last call %v", p.Phases[0].New, p.Idle.Accepts, p.Idle.Containers[0].Signal, p.LastCall)
			if got != tt.want {
				t.Errorf("%s, want %s; notes %q", got, tt.want, p.Notes)
			}
			if s := p.Containers[0].Settings; len(s) == 0 || s[0].Name != "MINIMUM_DRAIN_DURATION" || s[0].Value != p.Idle.Containers[0].Signal.String() {
				t.Errorf("settings %v", s)
			}
			isWorker := p.Phases[0].New == termination.None
			idle := max(0, p.Idle.Containers[0].Signal-2*time.Second) // set by the pod, although no client needs it
			if n := len(p.Fates); (n == 1) != isWorker || isWorker && p.Waste() != idle {
				t.Errorf("%d arrivals, waste %v", n, p.Waste())
			}
		})
	}
}

// TestWorkerAdvice: no client has to learn of a worker's end, so nothing is advised to wait for one.
func TestWorkerAdvice(t *testing.T) {
	pod := web(0)
	pod.Spec.Containers[0].Ports = nil
	pod.Labels = map[string]string{"lastcall.dev/inject": "true"}
	pod.Annotations = map[string]string{"lastcall.dev/until": "file:/idle"}
	var out strings.Builder
	isFound, err := plan.WriteAdvice(&out, "Pod work", pod, plan.Options{Request: 10 * time.Second, Propagation: 4 * time.Second})
	if err != nil || !isFound || !strings.Contains(out.String(), "lastcall.dev/minimum-drain: 0s") || strings.Contains(out.String(), "4 s after") {
		t.Errorf("found %v, %v:\n%s", isFound, err, &out)
	}
}
