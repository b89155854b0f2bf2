package advise_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/advise"
	"github.com/lastcall-dev/lastcall/kube/model"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

const sec = time.Second

// TestKnownServices: requests of one duration, whose right timers can be calculated by hand.
func TestKnownServices(t *testing.T) {
	for _, tt := range []struct {
		name               string
		kind               advise.Kind
		app                termination.Reaction
		takes, propagation time.Duration
		wait, grace        time.Duration
	}{
		{"the app exits: the sleep covers the requests", advise.Sleep, termination.Exits, 3 * sec, 4 * sec, 7 * sec, 7 * sec},
		{"the app finishes: the sleep covers the propagation", advise.Sleep, termination.Finishes, 3 * sec, 4 * sec, 4 * sec, 7 * sec},
		{"lastcall: the minimum drain covers the propagation, the last call the requests", advise.Lastcall, termination.Exits, 10 * sec, 4 * sec, 4 * sec, 16 * sec},
		{"no propagation delay", advise.Sleep, termination.Finishes, 3 * sec, 0, 0, 3 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := advise.Options{Load: model.Load{Rate: 5, Durations: model.Observed([]time.Duration{tt.takes}), Propagation: tt.propagation}}
			o.App = tt.app
			a, err := advise.For(tt.kind, o)
			if err != nil {
				t.Fatal(err)
			}
			if a.Wait != tt.wait || a.Grace != tt.grace || a.Share != 0 {
				t.Errorf("wait %v, grace %v, lost %g; want %v", a.Wait, a.Grace, a.Share, tt)
			}
			if a.Wait > 0 && a.ShareWait == 0 || a.ShareGrace == 0 {
				t.Errorf("a second less loses nothing: %g, %g", a.ShareWait, a.ShareGrace)
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
	d, err := model.Lognormal(200*time.Millisecond, 2*sec, 20*sec)
	if err != nil {
		t.Fatal(err)
	}
	o := advise.Options{Load: model.Load{Rate: 5, Durations: d, Propagation: 2 * sec}}
	o.App = termination.Finishes
	none, err := advise.For(advise.Sleep, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Lose = 0.01
	some, err := advise.For(advise.Sleep, o)
	if err != nil {
		t.Fatal(err)
	}
	if some.Grace >= none.Grace || some.Share > 0.01 {
		t.Errorf("1 %%: %v, %g; none: %v", some.Grace, some.Share, none.Grace)
	}
	o.App = termination.Ignores
	if _, err := advise.For(advise.Sleep, o); err != nil {
		t.Errorf("an app that serves until SIGKILL: %v", err)
	}
}
