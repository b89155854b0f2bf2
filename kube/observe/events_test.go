package observe

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// TestOneEvent: the controller makes an Event of each report of lastcall, so the observer makes none of a clean end.
func TestOneEvent(t *testing.T) {
	text, err := json.Marshal(drain.Report{Verdict: drain.Clean, Trigger: "hook", Began: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]string{inject.AnnotationStatus: string(inject.Injected)}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		container   string
		message     string
		lost        int
		proxy       string
		want        bool
	}{
		{"no lastcall", nil, "app", "", 0, pod.CarrierNone, true},
		{"another program's message", nil, "app", string(text), 0, pod.CarrierNone, true},
		{"a hook's report", ours, "app", string(text), 0, pod.CarrierHook, false},
		{"a hook without a report", ours, "app", "", 0, pod.CarrierHook, true},
		{"a sidecar's report", ours, "lastcall", string(text), 0, pod.CarrierLastcall, false},
		{"a hook's report, and a loss", ours, "app", string(text), 1, pod.CarrierHook, true},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: tt.annotations},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: tt.container}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Name: tt.container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: tt.message}},
			}}},
		}
		p := podOf(pod)
		r := Termination{Termination: advice.Termination{Proxy: p.Proxy}}
		r.Traffic.Lost.Reset = tt.lost
		r.conclude(&p, nil)
		if got := r.needsEvent(); got != tt.want || p.Proxy != tt.proxy {
			t.Errorf("%s: an Event is %v, want %v; proxy %s, verdict %s", tt.name, got, tt.want, p.Proxy, r.Verdict)
		}
	}
}
