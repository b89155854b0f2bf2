package inject

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// TestAgentReadsWhatIsWritten takes the sidecar's and the capture's environment and
// arguments as they will be read in the pod.
func TestAgentReadsWhatIsWritten(t *testing.T) {
	sidecar := pod.Find(&podOfFile(t, "testdata/golden/deployment.yaml").Spec, pod.Sidecar)
	env := environment(sidecar.Env).pairs()
	s, err := meshconfig.Resolve(meshconfig.Input{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if s.MinimumDrain.Value != 10*time.Second || s.GracePeriod.Value != 45*time.Second || s.TerminationDrain.Value != 20*time.Second || s.ScrapeTarget.Value != "http://127.0.0.1:9113/metrics" {
		t.Errorf("%v", env)
	}
	probers, _ := pod.Variable(sidecar, meshconfig.VariableProbes)
	probes, err := probe.ParseAll(unescape(probers))
	if err != nil || len(probes) != 3 {
		t.Errorf("%d probes, %v", len(probes), err)
	}
}

func TestCaptureReadsWhatIsWritten(t *testing.T) {
	annotations := map[string]string{
		"traffic.sidecar.istio.io/includeInboundPorts":     "80, 443",
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.0.0.0/8",
		"traffic.sidecar.istio.io/excludeOutboundPorts":    "",
	}
	got, r := Pod(aPod(func(p *corev1.Pod) { p.Annotations = annotations }), testOptions())
	if r.Outcome != Injected {
		t.Fatalf("%+v", r)
	}
	flags := map[string]string{}
	args := pod.Find(&got.Spec, pod.Sidecar).Args
	for _, arg := range args[1:slices.Index(args, "--")] {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !ok || !slices.ContainsFunc(capture.Settings, func(s capture.Setting) bool { return s.Flag == name }) {
			t.Errorf("%s is no flag of lastcall capture", arg)
		}
		flags[name] = value
	}
	c, err := capture.Resolve(capture.Input{Flags: flags})
	if err != nil || len(flags) != len(annotations) || len(c.ExcludeRanges) != 1 {
		t.Errorf("%v: %+v, %v", flags, c, err)
	}
}

// What is copied is where the app's hook looks for it, and the volume hides nothing in the
// image that copies: its program is /lastcall.
func TestCopyAndHookAgree(t *testing.T) {
	got, r := Pod(aPod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{"lastcall.dev/proxy": "sockets"}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
	}), testOptions())
	if r.Outcome != Injected {
		t.Fatalf("%+v", r)
	}
	from, to := pod.Find(&got.Spec, "lastcall-copy"), &got.Spec.Containers[0]
	if len(from.VolumeMounts) != 1 || len(from.Args) != 2 || from.Args[0] != "copy" {
		t.Fatalf("mounts %+v, arguments %q", from.VolumeMounts, from.Args)
	}
	if _, isSet := pod.Variable(to, "LASTCALL_IGNORE_FROM"); isSet {
		t.Error("clients behind a Service of externalTrafficPolicy Cluster come from the node's address, and must count")
	}
	copied := from.VolumeMounts[0]
	if program == copied.MountPath || strings.HasPrefix(program, copied.MountPath+"/") {
		t.Errorf("the volume at %s hides the program %s", copied.MountPath, program)
	}
	in := slices.IndexFunc(to.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == copied.Name })
	if in < 0 {
		t.Fatalf("the app has no volume %s", copied.Name)
	}
	below, ok := strings.CutPrefix(from.Args[1], copied.MountPath)
	if hook := to.Lifecycle.PreStop.Exec.Command[0]; !ok || hook != to.VolumeMounts[in].MountPath+below {
		t.Errorf("%s is copied in the volume at %s; the hook looks for %s in the volume at %s", from.Args[1], copied.MountPath, hook, to.VolumeMounts[in].MountPath)
	}
}
