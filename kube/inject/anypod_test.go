package inject_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// TestAnyPod: whatever the pod, times are in order, no container outlives its SIGKILL, and the phases cover the course
// without gaps.
func TestAnyPod(t *testing.T) {
	pods := inject.Pods(1, 500)
	rapid.Check(t, func(t *rapid.T) {
		pod := pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")]
		app := rapid.SampledFrom(podend.Reactions()).Draw(t, "app")
		busy := time.Duration(rapid.IntRange(0, 100).Draw(t, "busy")) * time.Second
		last := time.Duration(rapid.IntRange(-5, 40).Draw(t, "last")) * time.Second
		plan := termination.Of(pod, termination.Options{App: app})
		c := plan.Course(podend.Traffic{Busy: busy, Last: last, Idle: rapid.Bool().Draw(t, "idle")})
		for i, m := range c.Containers {
			if m.Signal > max(plan.Grace, podend.LeastPeriod) || m.Gone > m.Kill || m.Gone < 0 {
				t.Fatalf("%s: %+v", plan.Containers[i].Name, m)
			}
		}
		best := plan.Best().Course(podend.Traffic{Busy: busy, Last: last})
		open := termination.Of(pod, termination.Options{})
		worst, hoped := open.Course(podend.Traffic{Busy: busy}), open.Best().Course(podend.Traffic{Busy: busy})
		if worst.Accepts > hoped.Accepts || worst.Cut > hoped.Cut {
			t.Fatalf("what is unknown: at its worst %+v, at its best %+v", worst, hoped)
		}
		at := time.Duration(0)
		for _, p := range plan.Phases(c, best, busy) {
			if p.From != at || p.To < p.From {
				t.Fatalf("phase %+v begins at %v", p, at)
			}
			at = p.To
		}
		if at != max(c.Gone, best.Gone) {
			t.Fatalf("the phases end at %v, the pod at %v", at, c.Gone)
		}
	})
}
