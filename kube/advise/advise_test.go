package advise_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/advise"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
)

const sec = time.Second

// TestKnownServices: requests of one duration, whose right timers can be calculated by hand.
func TestKnownServices(t *testing.T) {
	for _, tt := range []struct {
		name               string
		kind               advise.Kind
		app                course.Reaction
		takes, propagation time.Duration
		wait, grace        time.Duration
	}{
		{"the app exits: the sleep covers the requests", advise.Sleep, course.Exits, 3 * sec, 4 * sec, 7 * sec, 8 * sec},
		{"the app finishes: the sleep covers the propagation", advise.Sleep, course.Finishes, 3 * sec, 4 * sec, 4 * sec, 8 * sec},
		{"lastcall: the minimum drain covers the propagation, the last call the requests", advise.Lastcall, course.Exits, 10 * sec, 4 * sec, 4 * sec, 16 * sec},
		{"no propagation delay", advise.Sleep, course.Finishes, 3 * sec, 0, 0, 4 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := advise.Options{Durations: advise.Observed([]time.Duration{tt.takes}), Propagation: tt.propagation}
			o.App = tt.app
			a, err := advise.For(tt.kind, o)
			if err != nil {
				t.Fatal(err)
			}
			if a.Wait != tt.wait || a.Grace != tt.grace {
				t.Errorf("wait %v, grace %v; want %v", a.Wait, a.Grace, tt)
			}
			if len(a.Why(o)) < 2 || !strings.HasPrefix(advise.Confidence(o), "low: 1 durations") {
				t.Errorf("%q, %q", a.Why(o), advise.Confidence(o))
			}
			var patch struct {
				Spec struct {
					Template struct {
						Spec corev1.PodSpec `json:"spec"`
					} `json:"template"`
				} `json:"spec"`
			}
			if err := yaml.Unmarshal([]byte(a.Patch([]string{"app"})), &patch); err != nil || *patch.Spec.Template.Spec.TerminationGracePeriodSeconds != int64(tt.grace/sec) {
				t.Errorf("%v: %s", err, a.Patch([]string{"app"}))
			}
		})
	}
}

// TestShare: a share that may be lost makes the timers shorter.
func TestShare(t *testing.T) {
	d, err := advise.Lognormal(200*time.Millisecond, 2*sec, 20*sec)
	if err != nil {
		t.Fatal(err)
	}
	o := advise.Options{Durations: d, Propagation: 2 * sec}
	o.App = course.Finishes
	none, err := advise.For(advise.Sleep, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Lose = 0.01
	some, err := advise.For(advise.Sleep, o)
	if err != nil {
		t.Fatal(err)
	}
	if some.Grace >= none.Grace {
		t.Errorf("1 %%: %v; none: %v", some.Grace, none.Grace)
	}
	o.App = course.Ignores
	if _, err := advise.For(advise.Sleep, o); err != nil {
		t.Errorf("an app that serves until SIGKILL: %v", err)
	}
}

// TestAdviceHasNoFindings: lint finds nothing wrong with the advised timers.
func TestAdviceHasNoFindings(t *testing.T) {
	for _, kind := range []advise.Kind{advise.Sleep, advise.Lastcall} {
		for _, app := range []course.Reaction{course.Exits, course.Finishes, course.ServesOn, course.Ignores} {
			for _, takes := range []time.Duration{10 * time.Millisecond, sec, 20 * sec, 90 * sec} {
				for _, propagation := range []time.Duration{0, 500 * time.Millisecond, 4 * sec, 60 * sec} {
					o := advise.Options{Durations: advise.Observed([]time.Duration{takes}), Propagation: propagation}
					o.App = app
					a, err := advise.For(kind, o)
					if err != nil {
						t.Errorf("%s, %s, %v, %v: %v", kind, app, takes, propagation, err)
						continue
					}
					if a.Wait >= a.Grace {
						t.Errorf("%s, %s, %v, %v: wait %v of a grace period of %v", kind, app, takes, propagation, a.Wait, a.Grace)
					}
					settings, err := inject.Resolve("", a.Pod.Annotations, nil)
					for _, f := range lint.Pod(lint.Input{Pod: a.Pod, Settings: settings, Err: err}) {
						if f.Severity == lint.Error {
							t.Errorf("%s, %s, %v, %v: %s %s", kind, app, takes, propagation, f.ID, f.Text)
						}
					}
				}
			}
		}
	}
}
