package inject

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// podOfFile is the pod of a manifest that an injector has written, as the API server has it.
func podOfFile(t *testing.T, path string) *corev1.Pod {
	t.Helper()
	_, done, err := Manifest(readFile(t, path), offline)
	if err != nil || len(done) != 1 {
		t.Fatalf("%s: %v, %d workloads", path, err, len(done))
	}
	return done[0].Workload.Pod
}

// Before and after lastcall are two values, whatever carries the traffic: they are two series of one metric.
func TestCarrierOf(t *testing.T) {
	restricted := Namespace{Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}
	ambient := aPod(func(p *corev1.Pod) { p.Annotations["ambient.istio.io/redirection"] = "enabled" })
	for _, c := range []struct {
		name          string
		pod           *corev1.Pod
		ns            Namespace
		before, after string
		proxy, app    string // a container that carries the traffic of the others, and one of these
	}{
		{"bare", aPod(nil), Namespace{}, "none", "lastcall", "", "web"},
		{"bare, without NET_ADMIN", aPod(nil), restricted, "none", "hook", "", "web"},
		{"ambient, as istio-cni marks it", ambient, Namespace{}, "istio-ambient", "istio-ambient-hook", "", "web"},
		{"Istio, native", podOfFile(t, "testdata/istio/injected/native.yaml"), Namespace{}, "istio", "istio-hook", "istio-proxy", "web"},
		{"Istio, classic", podOfFile(t, "testdata/istio/injected/classic.yaml"), Namespace{}, "istio", "istio-hook", "istio-proxy", "web"},
		{"linkerd, native", podOfFile(t, "testdata/linkerd/native.yaml"), Namespace{}, "linkerd", "linkerd-hook", "linkerd-proxy", "app"},
		{"linkerd, classic", podOfFile(t, "testdata/linkerd/classic.yaml"), Namespace{}, "linkerd", "linkerd-hook", "linkerd-proxy", "app"},
		{"a mesh that is yet to come", aPod(func(p *corev1.Pod) { p.Annotations["linkerd.io/inject"] = "enabled" }), Namespace{}, "none", "hook", "", "web"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions()
			o.Namespace = c.ns
			after, r := Pod(c.pod, o)
			if r.Outcome != Injected {
				t.Fatalf("%+v", r)
			}
			for _, one := range []struct {
				pod  *corev1.Pod
				want string
				ours bool
			}{{c.pod, c.before, false}, {after, c.after, true}} {
				if got := pod.CarrierOf(one.pod); got != one.want || pod.HasLastcall(got) != one.ours {
					t.Errorf("%s, with lastcall: %v; want %s", got, pod.HasLastcall(got), one.want)
				}
				spec := &one.pod.Spec
				proxy, app := pod.Find(spec, c.proxy), pod.Find(spec, c.app)
				if isProxy := pod.IsProxy(spec, proxy); c.proxy != "" && !isProxy || app == nil || pod.IsProxy(spec, app) {
					t.Errorf("%s and %s: proxies %v and %v", c.proxy, c.app, isProxy, pod.IsProxy(spec, app))
				}
				if pod.WithoutHook(c.after) != c.before && c.before != "none" {
					t.Errorf("%s without a hook is not %s", c.after, c.before)
				}
			}
		})
	}
}
