package termination_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/rehearsal"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// podOf is the manifest of a strategy of the rehearsal.
func podOf(t *testing.T, s strategy.Strategy, grace time.Duration) *corev1.Pod {
	t.Helper()
	hooks := ""
	if s.Sleep > 0 {
		hooks = fmt.Sprintf("lifecycle: {preStop: {sleep: {seconds: %d}}}", int(s.Sleep.Seconds()))
	}
	labels, annotations, proxy, native := "", "", "", ""
	config := ""
	switch s.Sidecar {
	case strategy.NoSidecar:
	case strategy.Fixed:
		proxy = "- {name: istio-proxy, image: proxyv2, " + hooks + "}"
		config = fmt.Sprintf("terminationDrainDuration: %v", s.TerminationDrain)
	case strategy.ExitOnZero:
		proxy = "- {name: istio-proxy, image: proxyv2}"
		config = `proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: "true"}`
	case strategy.IstioNative:
		native = "- {name: istio-proxy, image: proxyv2, restartPolicy: Always, lifecycle: {preStop: {exec: {command: [pilot-agent, request, --debug-port=15020, POST, drain]}}}}"
	case strategy.Lastcall:
		annotations = "lastcall.dev/sidecar: classic, "
		labels = `{lastcall.dev/inject: "true"}`
	case strategy.LastcallNative:
		labels = `{lastcall.dev/inject: "true"}`
	}
	if s.Netstat {
		proxy = `- {name: istio-proxy, image: proxyv2, lifecycle: {preStop: {exec: {command: [/bin/sh, -c, "while [ $(netstat -plunt | grep tcp | grep -v envoy | wc -l) -ne 0 ]; do sleep 1; done"]}}}}`
	}
	if config != "" {
		annotations += fmt.Sprintf("proxy.istio.io/config: %q", config)
	}
	text := fmt.Sprintf(`
metadata: {name: web, labels: %s, annotations: {%s}}
spec:
  terminationGracePeriodSeconds: %d
  initContainers: [ ]
  containers:
  - {name: app, image: app, ports: [{containerPort: 8080}], %s}
  %s
`, orEmpty(labels), annotations, int(s.GraceOr(grace).Seconds()), hooks, proxy)
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if native != "" {
		if err := yaml.Unmarshal([]byte("initContainers:\n"+native), &p.Spec); err != nil {
			t.Fatal(err)
		}
	}
	return &p
}

func orEmpty(text string) string {
	if text == "" {
		return "{}"
	}
	return text
}

var reactions = map[strategy.SIGTERMBehaviour]termination.Reaction{
	strategy.Exits: termination.Exits, strategy.ClosesListener: termination.Finishes, strategy.KeepsListener: termination.ServesOn,
}

// TestAgreesWithTheRehearsal compares the prediction from manifests with the rehearsal's judge, for each of its strategies and
// apps, requests and grace periods.
func TestAgreesWithTheRehearsal(t *testing.T) {
	compared := 0
	for _, s := range strategy.Strategies() {
		for _, app := range []strategy.SIGTERMBehaviour{strategy.Exits, strategy.ClosesListener, strategy.KeepsListener} {
			for _, left := range []time.Duration{1, 3, 10, 17, 40} {
				for _, grace := range []time.Duration{8, 30, 60} {
					s.App = app
					left, grace := left*time.Second, grace*time.Second
					want := rehearsal.Expect(s, left, grace)
					plan := termination.Of(podOf(t, s, grace), termination.Options{App: reactions[app], Istio: inject.Classic})
					traffic := termination.Traffic{Busy: left, Idle: s.Idle}
					c := plan.Course(traffic)
					lost := left > c.Cut
					at := min(left, c.Cut)
					name := fmt.Sprintf("%s, app %s, a request of %v, grace %v", s.Name, reactions[app], left, grace)
					const slack = 100 * time.Millisecond
					if lost != want.IsLost || !want.Answered.Holds(at, slack) || !want.Gone.Holds(c.Gone, slack) || want.IsKilled && !c.Killed {
						t.Errorf("%s:\n got lost %v at %v by %q, gone %v, killed %v\nwant lost %v at %v, gone %v, killed %v", name, lost, at, c.CutBy, c.Gone, c.Killed,
							want.IsLost, want.Answered, want.Gone, want.IsKilled)
					}
					compared++
				}
			}
		}
	}
	t.Logf("%d predictions compared", compared)
}
