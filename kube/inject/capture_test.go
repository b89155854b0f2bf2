package inject

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// rights are the capabilities that containers ask for, by name.
func rights(p *corev1.Pod) (all map[string][]corev1.Capability) {
	all = map[string][]corev1.Capability{}
	for _, c := range pod.Containers(&p.Spec) {
		if s := c.SecurityContext; s != nil && s.Capabilities != nil && len(s.Capabilities.Add) > 0 {
			all[c.Name] = s.Capabilities.Add
		}
	}
	return all
}

// Each form of the capture, for both forms of the sidecar: the rights of the containers, and what sets the rules.
func TestCaptureForms(t *testing.T) {
	for _, form := range []Sidecar{Native, Classic} {
		for chosen, want := range map[Capture]map[string][]corev1.Capability{
			CaptureSidecar: {pod.Sidecar: {"NET_ADMIN", "SETPCAP"}},
			CaptureInit:    {containerCapture: {"NET_ADMIN"}},
			CaptureCNI:     {},
		} {
			o := testOptions()
			o.Sidecar, o.Capture = form, chosen
			byOption, r := Pod(aPod(exclude9100), o)
			if got := rights(byOption); r.Outcome != Injected || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, %s: %v, %+v", form, chosen, got, r)
			}
			o.Capture = CaptureInit
			if chosen == CaptureInit {
				o.Capture = CaptureCNI
			}
			byAnnotation, _ := Pod(aPod(func(p *corev1.Pod) {
				exclude9100(p)
				p.Annotations[annotationCapture] = string(chosen)
			}), o)
			delete(byOption.Annotations, annotationCapture)
			delete(byAnnotation.Annotations, annotationCapture)
			if !reflect.DeepEqual(byOption, byAnnotation) {
				t.Errorf("%s, %s: the annotation and the option differ", form, chosen)
			}

			sidecar := pod.Find(&byOption.Spec, pod.Sidecar)
			agent := []string{"agent", "--capture", "--annotations", mountPodInfo + "/annotations", "--sidecar", string(form)}
			if form == Classic {
				agent = append(agent, "--copy-to", mountBinary+"/lastcall")
			}
			if chosen == CaptureCNI {
				agent = append(agent, "--check-capture")
			}
			if marked := byOption.Annotations["lastcall.dev/cni"]; marked != "" != (chosen == CaptureCNI) || marked != "" && marked != "15000,15020" {
				t.Errorf("%s, %s: annotation lastcall.dev/cni is %q", form, chosen, marked)
			}
			if chosen == CaptureSidecar {
				agent = append([]string{"capture", "--exclude-inbound-ports=9100", "--", program}, agent...)
			}
			if !slices.Equal(sidecar.Args, agent) {
				t.Errorf("%s, %s: %q, want %q", form, chosen, sidecar.Args, agent)
			}
			s := sidecar.SecurityContext
			if *s.RunAsUser != istio.ProxyID || *s.RunAsGroup != istio.ProxyID || !*s.RunAsNonRoot || *s.Privileged || !*s.ReadOnlyRootFilesystem ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || *s.AllowPrivilegeEscalation {
				t.Errorf("%s, %s: %+v", form, chosen, s)
			}
		}
	}
}

func exclude9100(p *corev1.Pod) {
	p.Annotations = map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9100"}
}

// A namespace without NET_ADMIN admits the form that needs no right.
func TestCaptureAndPodSecurity(t *testing.T) {
	for chosen, want := range map[Capture]Proxy{CaptureSidecar: Sockets, CaptureInit: Sockets, CaptureCNI: Pipe} {
		o := testOptions()
		o.Capture = chosen
		o.Namespace.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
		if got, r := Pod(aPod(nil), o); r.Proxy != want || len(rights(got)) != 0 || pod.Find(&got.Spec, containerCapture) != nil || (pod.Find(&got.Spec, containerCopy) != nil) != (want == Sockets) {
			t.Errorf("%s: %+v, rights %v", chosen, r, rights(got))
		}
	}
}

// The plugin captures what is marked, so the mark is on pods with a sidecar alone.
func TestMarkForThePlugin(t *testing.T) {
	o := testOptions()
	o.Capture = CaptureCNI
	injected, _ := Pod(aPod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{"proxy.istio.io/config": "{statusPort: 16020, proxyAdminPort: 16000}"}
	}), o)
	if got := injected.Annotations["lastcall.dev/cni"]; got != "16000,16020" {
		t.Errorf("the agent's ports are %q", got)
	}
	if again, r := Pod(injected, o); !reflect.DeepEqual(again, injected) || r.Outcome != Injected {
		t.Errorf("a second injection: %+v", r)
	}
	stale := func(p *corev1.Pod) { p.Annotations = map[string]string{"lastcall.dev/cni": "15000,15020"} }
	for name, p := range map[string]*corev1.Pod{
		"no capture": aPod(func(p *corev1.Pod) { stale(p); p.Annotations["lastcall.dev/proxy"] = "sockets" }),
		"init":       aPod(func(p *corev1.Pod) { stale(p); p.Annotations["lastcall.dev/capture"] = "init" }),
		"left alone": aPod(func(p *corev1.Pod) { stale(p); p.Annotations["lastcall.dev/capture"] = "x" }),
	} {
		if got, r := Pod(p, o); got.Annotations["lastcall.dev/cni"] != "" {
			t.Errorf("%s: the mark of another pod stays: %+v", name, r)
		}
	}
	mesh := injected.DeepCopy()
	mesh.Spec.Containers = append(mesh.Spec.Containers, corev1.Container{Name: pod.IstioProxy, Image: "istio/proxyv2"})
	if got, r := Pod(mesh, o); r.Proxy != Istio || got.Annotations["lastcall.dev/cni"] != "" {
		t.Errorf("with Istio's sidecar: %+v, %v", r, got.Annotations)
	}
}

// Before a classic sidecar runs, init containers would be redirected to nothing.
func TestPluginAndInitContainers(t *testing.T) {
	o := testOptions()
	o.Capture = CaptureCNI
	with := func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "migrate", Image: "app"})
	}
	if got, r := Pod(aPod(with), o); r.Outcome != Injected || got.Spec.InitContainers[0].Name != pod.Sidecar {
		t.Errorf("native: %+v, %+v", r, got.Spec.InitContainers)
	}
	o.Sidecar = Classic
	if got, r := Pod(aPod(with), o); r.Outcome != LeftAlone || !strings.Contains(r.Reason, "native") || got.Annotations["lastcall.dev/cni"] != "" {
		t.Errorf("classic: %+v", r)
	}
	if _, r := Pod(aPod(nil), o); r.Outcome != Injected {
		t.Errorf("classic without init containers: %+v", r)
	}
}
