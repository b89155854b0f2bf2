package lint_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
)

func TestRulesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range lint.Rules() {
		if !strings.Contains(string(text), "| "+r.ID+" |") {
			t.Errorf("docs/lint.md does not know %s", r.ID)
		}
	}
}

func TestService(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy corev1.ServiceExternalTrafficPolicy
		app    string
		change func(*corev1.Pod)
		want   int
	}{
		{"Local, gone at once", "Local", "web", func(*corev1.Pod) {}, 1},
		{"Cluster", "Cluster", "web", func(*corev1.Pod) {}, 0},
		{"another's pods", "Local", "other", func(*corev1.Pod) {}, 0},
		{"stays by its preStop", "Local", "web", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 15}}}
		}, 0},
		{"too short", "Local", "web", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
		}, 1},
		{"a hook of unknown length", "Local", "web", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/drain"}}}}
		}, 0},
		{"stays by its minimum drain", "Local", "web", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"proxy.istio.io/config": "proxyMetadata: {MINIMUM_DRAIN_DURATION: 10s}"}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}}}
			c.change(pod)
			settings, err := inject.Resolve("", pod.Annotations, nil)
			s := &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": c.app}, ExternalTrafficPolicy: c.policy}}
			if got := lint.Service(s, lint.Input{Pod: pod, Settings: settings, Err: err}); len(got) != c.want {
				t.Errorf("%v", got)
			}
		})
	}
}
