package plan_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/plan"
)

const sec = time.Second

// TestAdvice: requests of one duration, whose right timers can be calculated by hand.
func TestAdvice(t *testing.T) {
	for _, tt := range []struct {
		name               string
		lastcall           bool
		app                podend.Reaction
		takes, propagation time.Duration
		wait, grace        time.Duration
	}{
		{"the app exits: the sleep covers the requests", false, podend.Exits, 3 * sec, 4 * sec, 7 * sec, 8 * sec},
		{"the app finishes: the sleep covers the propagation", false, podend.Finishes, 3 * sec, 4 * sec, 4 * sec, 8 * sec},
		{"lastcall: the minimum drain covers the propagation, the last call the requests", true, podend.Exits, 10 * sec, 4 * sec, 4 * sec, 16 * sec},
		{"no propagation delay", false, podend.Finishes, 3 * sec, 0, 0, 4 * sec},
		{"parts of a second", false, podend.Exits, 1500 * time.Millisecond, 2 * sec, 4 * sec, 5 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := plan.Options{Request: tt.takes, Propagation: tt.propagation}
			o.App = tt.app
			a, err := plan.Advise(web(0), tt.lastcall, o)
			if err != nil {
				t.Fatal(err)
			}
			if a.Wait != tt.wait || a.Grace != tt.grace {
				t.Errorf("wait %v, grace %v; want %v", a.Wait, a.Grace, tt)
			}
			var patch struct {
				Spec struct {
					Template corev1.PodTemplateSpec
				}
			}
			if err := yaml.Unmarshal([]byte(a.Patch()), &patch); err != nil || *patch.Spec.Template.Spec.TerminationGracePeriodSeconds != int64(tt.grace/sec) {
				t.Errorf("%v: %s", err, a.Patch())
			}
		})
	}
}

// TestNoAdvice: a mesh's proxy that ends before the request does.
func TestNoAdvice(t *testing.T) {
	pod := web(0)
	pod.Labels = map[string]string{"sidecar.istio.io/inject": "true"}
	o := options
	o.Istio = inject.Classic
	var out strings.Builder
	isFound, err := plan.WriteAdvice(&out, "Pod web", pod, o)
	if err != nil || !isFound || !strings.Contains(out.String(), "no grace period suffices: requests in flight") || !strings.Contains(out.String(), "With lastcall: lastcall.dev/minimum-drain 2s") {
		t.Errorf("found %v, %v:\n%s", isFound, err, &out)
	}
}

// TestAdviceHasNoFindings: lint finds nothing wrong with the advised timers.
func TestAdviceHasNoFindings(t *testing.T) {
	for _, app := range []podend.Reaction{podend.Exits, podend.Finishes, podend.ServesOn, podend.Ignores} {
		for _, takes := range []time.Duration{10 * time.Millisecond, sec, 20 * sec, 90 * sec} {
			for _, propagation := range []time.Duration{0, 500 * time.Millisecond, 4 * sec, 60 * sec} {
				for _, lastcall := range []bool{false, true} {
					o := plan.Options{Request: takes, Propagation: propagation}
					o.App = app
					a, err := plan.Advise(web(0), lastcall, o)
					if err != nil || a.Wait >= a.Grace {
						t.Errorf("%s, %v, %v, lastcall %v: %+v, %v", app, takes, propagation, lastcall, a, err)
						continue
					}
					for _, f := range lint.Pod(a.Pod, false, "") {
						if f.Severity == lint.Error {
							t.Errorf("%s, %v, %v, lastcall %v: %s %s", app, takes, propagation, lastcall, f.ID, f.Text)
						}
					}
				}
			}
		}
	}
}
