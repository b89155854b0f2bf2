package inject

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

// TestThousandPods generates pods as clusters have them: each is injected, or left alone with a reason; a second
// injection changes nothing; the patch produces the intended pod; and the result is consistent. (lab/e2e tests that an
// API server accepts all of them.)
func TestThousandPods(t *testing.T) {
	t.Parallel()
	outcomes := map[Outcome]int{}
	proxies := map[Proxy]int{}
	reasons := map[string]bool{}
	for i, pod := range Pods(1, 1000) {
		o := testOptions()
		o.Capture = []Capture{"", CaptureInit}[i%2]
		before := pod.DeepCopy()
		after, r := Pod(pod, o)
		outcomes[r.Outcome]++
		proxies[r.Proxy]++
		switch r.Outcome {
		case Injected:
			if after.Labels[LabelInjected] != LabelInjectedValue {
				t.Errorf("%s: no label", pod.Name)
			}
		default:
			reasons[r.Reason] = true
			if r.Reason == "" || !reflect.DeepEqual(after.Spec, before.Spec) {
				t.Errorf("%s: %s for %q, and changed: %v", pod.Name, r.Outcome, r.Reason,
					!reflect.DeepEqual(after.Spec, before.Spec))
			}
		}
		if !reflect.DeepEqual(pod, before) {
			t.Errorf("%s: the pod given was changed", pod.Name)
		}
		checkAgain(t, pod.Name, after, o)
		checkPatch(t, before, after)
		for _, wrong := range inconsistencies(after) {
			t.Errorf("%s (%s): %s", pod.Name, r.Outcome, wrong)
		}
	}
	if outcomes[Injected] < 600 || outcomes[LeftAlone] < 50 || outcomes[NotRequested] < 5 || len(reasons) < 8 {
		t.Errorf("the corpus has little to say: %v, %d reasons", outcomes, len(reasons))
	}
	for _, p := range []Proxy{Pipe, Sockets, Istio} {
		if proxies[p] == 0 {
			t.Errorf("no pod got %s: %v", p, proxies)
		}
	}
}

func checkPatch(t *testing.T, before, after *corev1.Pod) {
	t.Helper()
	operations, err := Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	want := after
	if got := applied(t, before, operations); !reflect.DeepEqual(got, applied(t, want, nil)) {
		t.Errorf("%s: the patch makes another pod", before.Name)
	}
}

// inconsistencies are pods that an API server refuses, as far as an injection could bring it about.
func inconsistencies(in *corev1.Pod) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	volumes, containers := map[string]bool{}, map[string]bool{}
	for _, v := range in.Spec.Volumes {
		if volumes[v.Name] {
			say("two volumes %s", v.Name)
		}
		volumes[v.Name] = true
	}
	grace := int64(30)
	if g := in.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	for i, c := range pod.Containers(&in.Spec) {
		if containers[c.Name] {
			say("two containers %s", c.Name)
		}
		containers[c.Name] = true
		mounts, ports, env := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, m := range c.VolumeMounts {
			if mounts[m.MountPath] || !volumes[m.Name] {
				say("container %s: mount %s of %s", c.Name, m.MountPath, m.Name)
			}
			mounts[m.MountPath] = true
		}
		for _, p := range c.Ports {
			if p.Name != "" && ports[p.Name] || len(p.Name) > 15 {
				say("container %s: port %s", c.Name, p.Name)
			}
			ports[p.Name] = true
		}
		for _, e := range c.Env {
			if env[e.Name] && c.Name == pod.Sidecar {
				say("container %s: two variables %s", c.Name, e.Name)
			}
			env[e.Name] = true
		}
		isInit := i < len(in.Spec.InitContainers)
		if isInit && !pod.IsNative(c) && (c.Lifecycle != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil ||
			c.StartupProbe != nil) {
			say("init container %s has hooks or probes", c.Name)
		}
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
			h := c.Lifecycle.PreStop
			if n := set(h.Exec != nil) + set(h.HTTPGet != nil) + set(h.TCPSocket != nil) +
				set(h.Sleep != nil); n != 1 || h.Sleep != nil && h.Sleep.Seconds > grace {
				say("container %s: preStop %+v", c.Name, h)
			}
		}
		if own := in.Spec.Resources; own != nil && (c.Name == pod.Sidecar || c.Name == containerCapture ||
			c.Name == containerCopy) {
			for name, limit := range c.Resources.Limits { // a limit alone is a request too
				if request, isSet := c.Resources.Requests[name]; !isSet || !request.IsZero() {
					say("container %s asks for %s (limit %v) of a pod that has a budget", c.Name, name, limit.String())
				}
			}
		}
		for name, request := range c.Resources.Requests {
			if limit, ok := c.Resources.Limits[name]; ok && request.Cmp(limit) > 0 {
				say("container %s: %s request over limit", c.Name, name)
			}
		}
	}
	return wrong
}

func set(is bool) int {
	if is {
		return 1
	}
	return 0
}
