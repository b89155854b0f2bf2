package inject

import (
	"reflect"
	"slices"
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
		} {
			o := testOptions()
			o.Sidecar, o.Capture = form, chosen
			byOption, r := Pod(aPod(exclude9100), o)
			if got := rights(byOption); r.Outcome != Injected || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, %s: %v, %+v", form, chosen, got, r)
			}
			o.Capture = CaptureInit
			if chosen == CaptureInit {
				o.Capture = CaptureSidecar
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

// A namespace without NET_ADMIN admits neither form: the app's preStop watches its sockets.
func TestCaptureAndPodSecurity(t *testing.T) {
	for _, chosen := range []Capture{CaptureSidecar, CaptureInit} {
		o := testOptions()
		o.Capture = chosen
		o.Namespace.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
		if got, r := Pod(aPod(nil), o); r.Proxy != Sockets || len(rights(got)) != 0 || pod.Find(&got.Spec, containerCapture) != nil || pod.Find(&got.Spec, containerCopy) == nil {
			t.Errorf("%s: %+v, rights %v", chosen, r, rights(got))
		}
	}
}
