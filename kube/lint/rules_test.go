package lint_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// TestPages examines the examples of the rules' pages, as a user would: the bad one has exactly that finding, the good one
// none.
func TestPages(t *testing.T) {
	list, err := os.ReadFile("../../docs/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)## (Bad|Good)\n\n```yaml\n(.*?)```")
	for _, r := range lint.Rules() {
		if !strings.Contains(string(list), "| ["+r.ID+"](rules/"+r.ID+".md) | "+r.Text+" |") {
			t.Errorf("docs/lint.md has no line for %s", r.ID)
		}
		page, err := os.ReadFile("../../docs/rules/" + r.ID + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(page), "# "+r.ID+": "+r.Text+"\n") {
			t.Errorf("the page of %s has another title", r.ID)
		}
		examples := example.FindAllSubmatch(page, -1)
		if len(examples) != 2 {
			t.Fatalf("the page of %s has %d examples", r.ID, len(examples))
		}
		for _, m := range examples {
			file := manifest.Parse(r.ID, m[2])
			result := lint.Examine([]*manifest.File{file}, lint.Options{})
			isBad := string(m[1]) == "Bad"
			if got := result.Findings; isBad != (len(got) == 1 && got[0].ID == r.ID) || !isBad && len(got) > 0 || result.Examined == 0 && r.ID != "LC000" {
				t.Errorf("%s, %s example: %v", r.ID, m[1], got)
			}
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
