package drain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*drain.Config)
		want   string // a part of the error; "" for none
	}{
		{"the defaults", func(*drain.Config) {}, ""},
		{"all that may be zero", func(c *drain.Config) {
			c.TerminationDrain, c.MinimumDrain, c.QuietTime, c.IdleGrace, c.Margin = 0, 0, 0, 0, 0
		}, ""},
		{"a negative minimum", func(c *drain.Config) { c.MinimumDrain = -s }, "minimum drain is -1s: must not be negative"},
		{"a negative quiet time", func(c *drain.Config) { c.QuietTime = -s }, "quiet time is -1s"},
		{"no grace period", func(c *drain.Config) { c.GracePeriod = 0 }, "grace period is 0s: must be positive"},
		{"no poll interval", func(c *drain.Config) { c.PollInterval = 0 }, "poll interval is 0s: must be positive"},
		{"two mistakes: both are reported", func(c *drain.Config) { c.Margin, c.IdleGrace = -s, -s }, "last-call margin is -1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := drain.DefaultConfig()
			tt.change(&c)
			err := c.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Validate: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestContradictions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*drain.Config)
		want   string // a part of the only one; "" for none
	}{
		{"the defaults fit", func(*drain.Config) {}, ""},
		{"Istio's fit", func(c *drain.Config) { c.Mode = drain.Fixed }, ""},
		{"terminationDrainDuration 30s and 30 s of grace", func(c *drain.Config) { c.Mode, c.TerminationDrain = drain.Fixed, 30*s },
			"terminationDrainDuration 30s is not shorter than the grace period 30s: SIGKILL comes first"},
		{"MINIMUM_DRAIN_DURATION and Istio's exit on zero", func(c *drain.Config) { c.Mode, c.MinimumDrain = drain.IstioExitOnZero, time.Minute },
			"MINIMUM_DRAIN_DURATION 1m0s is not shorter than the grace period 30s"},
		{"MINIMUM_DRAIN_DURATION beyond the last call", func(c *drain.Config) { c.MinimumDrain = 29 * s },
			"MINIMUM_DRAIN_DURATION 29s is longer than the 28s until the last call"},
		{"a margin that eats the grace period", func(c *drain.Config) { c.Margin = 10 * s },
			"the last-call margin 10s is more than a quarter of the grace period 30s: using 7.5s"},
		{"no margin", func(c *drain.Config) { c.Margin = 0 }, "the last call comes at the moment of SIGKILL"},
		{"another mode's timer does not matter", func(c *drain.Config) { c.TerminationDrain = time.Hour }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := drain.DefaultConfig()
			tt.change(&c)
			got := c.Contradictions()
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("Contradictions: %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRunRefusesAnInvalidTermination(t *testing.T) {
	plane := dt.New(dt.Script{})
	defer plane.Stop()
	for want, termination := range map[string]drain.Termination{
		"drain: grace period is 0s: must be positive\npoll interval is 0s: must be positive": {Plane: plane},
		"drain: no data plane": {Config: drain.DefaultConfig()},
	} {
		if _, err := termination.Run(t.Context()); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if calls := plane.Calls(); len(calls) > 0 {
		t.Errorf("the data plane was called: %v", calls)
	}
}
