package inject

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

// The grace period covers the draining phase, the longest response and the last call, and is never shortened.
func TestStreams(t *testing.T) {
	for _, c := range []struct {
		name        string
		annotations map[string]string
		grace       int64 // of the manifest; 0: none
		want        int64 // 0: the pod is left alone
		margin      string
	}{
		{"ten minutes", map[string]string{annotationStreams: "10m"}, 0, 5 + 2 + 600 + 5, "5s"},
		{"shorter than the manifest's", map[string]string{annotationStreams: "10m"}, 3600, 3600, "5s"},
		{"longer than the manifest's", map[string]string{annotationStreams: "90s"}, 60, 5 + 2 + 90 + 5, "5s"},
		{"with timers of its own", map[string]string{
			annotationStreams: "1m", annotationMargin: "20s", pod.AnnotationMinimumDrain: "15s", annotationQuietTime: "3s",
		}, 0, 15 + 3 + 60 + 20, "20s"},
		{"no duration", map[string]string{annotationStreams: "600"}, 0, 0, ""},
		{"too long", map[string]string{annotationStreams: "25h"}, 0, 0, ""},
		{"too short", map[string]string{annotationStreams: "-1m"}, 0, 0, ""},
	} {
		got, r := Pod(aPod(func(p *corev1.Pod) {
			p.Annotations = maps.Clone(c.annotations)
			if c.grace > 0 {
				p.Spec.TerminationGracePeriodSeconds = &c.grace
			}
		}), testOptions())
		if c.want == 0 {
			if r.Outcome != LeftAlone || !strings.Contains(r.Reason, "annotation lastcall.dev/streams is") {
				t.Errorf("%s: %+v", c.name, r)
			}
			continue
		}
		if grace := got.Spec.TerminationGracePeriodSeconds; grace == nil || *grace != c.want {
			t.Errorf("%s: the grace period is %v, want %d s; %+v", c.name, pod.GraceOf(&got.Spec), c.want, r)
		}
		if margin, _ := pod.Variable(pod.Find(&got.Spec, pod.Sidecar), "LASTCALL_LAST_CALL_MARGIN"); margin != c.margin {
			t.Errorf("%s: the last call comes %s before its end, want %s", c.name, margin, c.margin)
		}
		if again, _ := Pod(got, testOptions()); again.Annotations[AnnotationNotes] != got.Annotations[AnnotationNotes] {
			t.Errorf("%s: injected twice: %q", c.name, again.Annotations[AnnotationNotes])
		}
	}
}
