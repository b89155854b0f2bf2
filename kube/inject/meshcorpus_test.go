package inject

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

// TestThousandPodsNextToMeshes puts another product's proxy into generated pods, before lastcall's injection, and between
// its two calls: whatever else the pods have, there is one redirect, the hooks agree with each other, and a further call
// changes nothing.
func TestThousandPodsNextToMeshes(t *testing.T) {
	sidecar := func(names ...string) func(*corev1.Pod) *corev1.Pod {
		return func(p *corev1.Pod) *corev1.Pod {
			p = p.DeepCopy()
			for _, name := range names {
				c := corev1.Container{Name: name, Image: name}
				if !strings.HasSuffix(name, "-init") {
					c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
				}
				p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			}
			return p
		}
	}
	others := []struct {
		name string
		add  func(*corev1.Pod) *corev1.Pod
	}{
		{"Istio, native", func(p *corev1.Pod) *corev1.Pod { return withIstio(p, native) }},
		{"Istio, classic", func(p *corev1.Pod) *corev1.Pod { return withIstio(p, classic) }},
		{"linkerd", sidecar("linkerd-init", "linkerd-proxy")},
		{"Kuma", sidecar("kuma-init", "kuma-sidecar")},
		{"unknown", sidecar("istio-init", "acme-proxy")},
	}
	injected, withdrawn := 0, 0
	for i, before := range Pods(7, 1000) {
		other, o := others[i%len(others)], testOptions()
		if i%2 == 0 {
			o.Sidecar = Classic
		}
		o.Capture = []Capture{"", CaptureInit}[i/2%2]
		early, r := Pod(other.add(before), o)
		checkNextToMesh(t, other.name+" first", early, r, o)
		first, r := Pod(before, o)
		if r.Outcome != Injected {
			continue
		}
		late, r2 := Pod(other.add(first), o)
		checkNextToMesh(t, "ours first, then "+other.name, late, r2, o)
		if injected++; pod.Find(&first.Spec, pod.Sidecar) != nil && pod.Find(&late.Spec, pod.Sidecar) == nil {
			withdrawn++
		}
	}
	if injected < 600 || withdrawn < 300 {
		t.Errorf("the corpus has little to say: %d injected, %d withdrawn", injected, withdrawn)
	}
}

func checkNextToMesh(t *testing.T, name string, p *corev1.Pod, r Result, o Options) {
	t.Helper()
	fail := func(format string, args ...any) { t.Helper(); t.Errorf(name+": "+p.Name+": "+format, args...) }
	for _, wrong := range inconsistencies(p) {
		fail("%s", wrong)
	}
	if pod.Find(&p.Spec, containerCapture) != nil || pod.Find(&p.Spec, pod.Sidecar) != nil && r.Outcome == Injected {
		fail("two redirects: %+v", r)
	}
	checkAgain(t, name+": "+p.Name, p, o)
	if r.Outcome != Injected {
		return
	}
	proxy := pod.Find(&p.Spec, pod.IstioProxy)
	for _, c := range pod.Containers(&p.Spec) {
		hook := command(t, p, c.Name)
		isPlane := isPlaneHook(pod.HookOf(c))
		switch {
		case isPlane && (!mounts(c) || pod.Find(&p.Spec, containerCopy) == nil):
			fail("container %s lacks the program of its hook", c.Name)
		case c.Name != pod.IstioProxy && strings.Contains(hook, "--pilot-agent"):
			fail("the hook of %s drains Envoy, also when the container restarts alone: %s", c.Name, hook)
		case strings.Contains(hook, "--envoy") && proxy == nil && p.Labels["sidecar.istio.io/inject"] != "true" && p.Annotations[annotationProxy] != "istio":
			fail("the hook of %s watches an Envoy that is not there", c.Name)
		}
		if pod.IsWaitGet(pod.HookOf(c)) {
			fail("the hook of %s calls a sidecar that is not there", c.Name)
		}
	}
	if proxy != nil && r.Proxy == Istio && !pod.IsNative(proxy) && pod.HookOf(proxy) == nil && slices.ContainsFunc(apps(&p.Spec), func(c *corev1.Container) bool { return isPlaneHook(pod.HookOf(c)) }) {
		fail("the classic istio-proxy has no hook")
	}
}
