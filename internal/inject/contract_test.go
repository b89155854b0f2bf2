package inject

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/agent"
	"github.com/lastcall-dev/lastcall/internal/capture"
	"github.com/lastcall-dev/lastcall/internal/meshconfig"
)

// TestAgentReadsWhatIsWritten takes the sidecar's and the capture's environment and
// arguments as they will be read in the pod.
func TestAgentReadsWhatIsWritten(t *testing.T) {
	text, err := os.ReadFile("testdata/golden/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var sidecar *corev1.Container
	_, _, err = Manifest(text, func(w *Workload) Options {
		sidecar = find(&w.Pod.Spec, "lastcall")
		return offline(w)
	})
	if err != nil || sidecar == nil {
		t.Fatalf("no sidecar in it (%v)", err)
	}
	var env []string
	for _, e := range sidecar.Env {
		env = append(env, e.Name+"="+unescape(e.Value))
	}
	s, err := meshconfig.Resolve(meshconfig.Input{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if s.MinimumDrain.Value != 10*time.Second || s.GracePeriod.Value != 45*time.Second || s.TerminationDrain.Value != 20*time.Second || s.ScrapeTarget.Value != "http://127.0.0.1:9113/metrics" {
		t.Errorf("%v", env)
	}
	probers, _ := variable(sidecar, variableProbes)
	probes, err := agent.ParseProbes(unescape(probers))
	if err != nil || len(probes) != 3 {
		t.Errorf("%d probes, %v", len(probes), err)
	}
}

func TestCaptureReadsWhatIsWritten(t *testing.T) {
	said := map[string]string{
		"traffic.sidecar.istio.io/includeInboundPorts":     "80, 443",
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.0.0.0/8",
		"traffic.sidecar.istio.io/excludeOutboundPorts":    "",
	}
	got, r := Pod(pod(func(p *corev1.Pod) { p.Annotations = said }), testOptions())
	if r.Outcome != Injected {
		t.Fatalf("%+v", r)
	}
	flags := map[string]string{}
	for _, arg := range find(&got.Spec, "lastcall-capture").Args[1:] {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !ok || !slices.ContainsFunc(capture.Settings, func(s capture.Setting) bool { return s.Flag == name }) {
			t.Errorf("%s is no flag of lastcall capture", arg)
		}
		flags[name] = value
	}
	c, err := capture.Resolve(capture.Input{Flags: flags})
	if err != nil || len(flags) != len(said) || len(c.ExcludeRanges) != 1 {
		t.Errorf("%v: %+v, %v", flags, c, err)
	}
}
