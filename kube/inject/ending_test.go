package inject

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// TestAppEnd: the annotation decides, then what was learned; the agent or the hook receives it.
func TestAppEnd(t *testing.T) {
	seen := Learned{App: drain.AppFinishes, Why: "3 of its pods closed their connections after SIGTERM"}
	for _, c := range []struct {
		name, annotation string
		learned          Learned
		want, note       string
	}{
		{"nothing", "", Learned{}, "", ""},
		{"annotation", "finishes", Learned{}, "finishes", "annotation lastcall.dev/app"},
		{"annotation before what was learned", "exits", seen, "exits", "annotation lastcall.dev/app"},
		{"learned", "", seen, "finishes", seen.Why},
		{"learned for auto", "auto", seen, "finishes", seen.Why},
		{"auto", "auto", Learned{}, "", ""},
	} {
		for _, proxy := range []Proxy{Pipe, Sockets} {
			o := testOptions()
			o.Learned = c.learned
			got, r := Pod(aPod(func(p *corev1.Pod) {
				p.Annotations = map[string]string{"lastcall.dev/proxy": string(proxy)}
				if c.annotation != "" {
					p.Annotations["lastcall.dev/app"] = c.annotation
				}
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8443}}
			}), o)
			reader := &got.Spec.Containers[0]
			if proxy == Pipe {
				reader = pod.Find(&got.Spec, pod.Sidecar)
			}
			if value, _ := pod.Variable(reader, "LASTCALL_APP"); value != c.want {
				t.Errorf("%s, %s: LASTCALL_APP is %q, want %q", c.name, proxy, value, c.want)
			}
			notes := strings.Join(r.Notes, "\n")
			if c.note != "" && !strings.Contains(notes, c.note) || c.note == "" && strings.Contains(notes, "the app ") {
				t.Errorf("%s, %s: notes %q", c.name, proxy, notes)
			}
			if again, _ := Pod(got, o); again.Annotations[AnnotationNotes] != got.Annotations[AnnotationNotes] {
				t.Errorf("%s, %s: injected twice: %q", c.name, proxy, again.Annotations[AnnotationNotes])
			}
		}
	}
	if _, r := Pod(aPod(func(p *corev1.Pod) { p.Annotations["lastcall.dev/app"] = "stays" }), testOptions()); r.Err == nil {
		t.Error("stays was accepted")
	}
}
