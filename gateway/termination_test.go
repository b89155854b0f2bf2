package gateway

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// The duration of each preset in virtual time: of an idle gateway, and of one with a client that connects every two
// seconds, for a minute and a half or forever.
func TestPresets(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		preset              string
		grace               time.Duration
		idle, busy, forever time.Duration
	}{
		{"nlb", 240 * s, 190 * s, 190 * s, 190 * s},
		{"alb", 360 * s, 310 * s, 310 * s, 310 * s},
		{"gke", 30 * s, 6 * s, 28 * s / 3, 28 * s / 3},
		{"cloudflare", 90 * s, 60 * s, 60 * s, 60 * s},
		{"adaptive", 30 * s, 10 * s, 28 * s * 2 / 3, 28 * s * 2 / 3},
		{"adaptive", 300 * s, 10 * s, 99 * s, 298 * s * 2 / 3},
		{"none", 30 * s, 0, 0, 0},
	} {
		t.Run(tt.preset, func(t *testing.T) {
			preset, err := PresetNamed(tt.preset, DefaultDeregistrationDelay)
			if err != nil {
				t.Fatal(err)
			}
			c, err := preset.Termination(tt.grace).Config()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct {
				who     string
				clients []dt.Client
				want    time.Duration
			}{
				{"idle", nil, tt.idle},
				{"busy", dt.Every(2*s, "/", s, 90*s, 10*time.Millisecond), tt.busy},
				{"busy for good", dt.Every(2*s, "/", s, time.Hour, 10*time.Millisecond), tt.forever},
			} {
				synctest.Test(t, func(t *testing.T) {
					plane := dt.New(dt.Script{Clients: x.clients})
					defer plane.Stop()
					r, err := drain.Termination{Plane: plane, Config: c, Log: slog.New(slog.DiscardHandler)}.Run(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if got := time.Duration(r.Duration); r.Verdict != drain.Clean || got != x.want {
						t.Errorf("%s: %s after %v, want clean after %v", x.who, r.Verdict, got, x.want)
					}
				})
			}
		})
	}
	if _, err := PresetNamed("elb", 0); err == nil || !strings.Contains(err.Error(), "must be one of nlb, alb, gke, cloudflare, adaptive, none") {
		t.Error(err)
	}
}

// The last call comes at the drain timeout, and the gateway has ended before the grace period does.
func TestDrainTimeout(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name           string
		grace, timeout time.Duration
		want           time.Duration
	}{
		{"left out", 30 * s, 0, 28 * s},
		{"left out, a short grace period", 4 * s, 0, 3 * s},
		{"said", 300 * s, 60 * s, 60 * s},
		{"set, just below the grace period", 30 * s, 29500 * time.Millisecond, 29500 * time.Millisecond},
		{"set, short", 30 * s, 3 * s, 3 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Termination{GracePeriod: tt.grace, DrainTimeout: tt.timeout, FailReadinessAfter: Never}.Config()
			if err != nil {
				t.Fatal(err)
			}
			if c.GracePeriod > tt.grace {
				t.Errorf("it would take up to %v of %v", c.GracePeriod, tt.grace)
			}
			synctest.Test(t, func(t *testing.T) {
				plane := dt.New(dt.Script{Clients: []dt.Client{dt.Get("/", -s, time.Hour)}})
				defer plane.Stop()
				r, err := drain.Termination{Plane: plane, Config: c, Log: slog.New(slog.DiscardHandler)}.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got := time.Duration(r.Duration); r.Verdict != drain.Cut || got != tt.want {
					t.Errorf("%s after %v, want cut after %v", r.Verdict, got, tt.want)
				}
			})
		})
	}
}

func TestContradictions(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name   string
		change func(*Termination)
		want   string // "" for none
	}{
		{"the preset", func(*Termination) {}, ""},
		{"all at zero", func(t *Termination) { *t = Termination{GracePeriod: s} }, ""},
		{"the minimum is longer than the drain timeout", func(t *Termination) { t.MinDrain, t.DrainTimeout = 20*s, 15*s }, "--minimum-drain 20s is longer than the 15s until the last call (grace period 30s)"},
		{"the minimum is longer than the grace period allows", func(t *Termination) { t.MinDrain = 29 * s }, "--minimum-drain 29s is longer than the 28s until the last call"},
		{"the drain timeout is as long as the grace period", func(t *Termination) { t.DrainTimeout = 30 * s }, "--drain-timeout 30s is not shorter than the grace period 30s: SIGKILL comes first"},
		{"readiness would never fail", func(t *Termination) { t.FailReadinessAfter = 29 * s }, "--health-check-failure-delay 29s is longer than the 28s until the last call"},
		{"negative", func(t *Termination) { t.MinDrain, t.ExitAt = -s, -1 }, "--exit-at-connections is -1: must not be negative"},
		{"no grace period", func(t *Termination) { t.GracePeriod = 0 }, "--grace is 0s: must be"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			preset, err := PresetNamed("gke", 0)
			if err != nil {
				t.Fatal(err)
			}
			o := preset.Termination(30 * s)
			tt.change(&o)
			if _, err := o.Config(); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}
