package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Preset is a kind of load balancer with its propagation delay: how late it stops sending to a terminating gateway.
type Preset struct {
	Name     string
	Reason   string // where MinDrain comes from
	MinDrain time.Duration
	Quiet    time.Duration
	Idle     time.Duration

	// Patient lets the quiet time extend the drain to two thirds of the time until the last call.
	Patient bool
}

// apiLag is the time from the removal of an endpoint to the deregistration of its target, as users of the AWS load
// balancer controller report it (issues 1064, 1719, 2366).
const apiLag = 10 * time.Second

// DefaultDeregistrationDelay is the default of AWS target groups.
const DefaultDeregistrationDelay = 300 * time.Second

// Presets returns the values of --load-balancer. deregistration is the target group's
// deregistration_delay.timeout_seconds, for alb.
func Presets(deregistration time.Duration) []Preset {
	return []Preset{
		{"nlb", "an NLB \"can send traffic to drained targets up to 180 seconds even after completely drained\" (istio issue 35964), and deregisters them up to 10 s after the endpoint has gone",
			180*time.Second + apiLag, drain.DefaultQuietTime, drain.DefaultIdleGrace, false},
		{"alb", "an ALB keeps its connections for the deregistration delay, which begins up to 10 s after the endpoint has gone (aws-load-balancer-controller issues 1064, 1719, 2366)",
			deregistration + apiLag, drain.DefaultQuietTime, drain.DefaultIdleGrace, false},
		{"gke", "GKE's health check takes 2 x 3 s to fail, which is not configurable (Envoy Gateway issue 9210); the quiet time covers the propagation of the endpoint's removal to the nodes",
			2 * 3 * time.Second, drain.DefaultQuietTime, drain.DefaultIdleGrace, false},
		{"cloudflare", "Cloudflare probes every 60 s, and answers 521 until then (cilium issue 45205)",
			60 * time.Second, drain.DefaultQuietTime, drain.DefaultIdleGrace, false},
		{"adaptive", "any load balancer: until no new request has arrived for the quiet time (traefik issue 13907), which is longer than GKE's 6 s and as long as a cloud's API lag",
			drain.DefaultMinimumDrain, apiLag, drain.DefaultIdleGrace, true},
		{"none", "no load balancer: the gateway exits when nothing is in flight",
			0, 0, 0, false},
	}
}

// PresetNamed returns the preset of that name.
func PresetNamed(name string, deregistration time.Duration) (Preset, error) {
	var names []string
	for _, p := range Presets(deregistration) {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("unknown load balancer %q: must be one of %s", name, strings.Join(names, ", "))
}

// Termination returns a Termination with the preset's times.
func (p Preset) Termination(grace time.Duration) Termination {
	return Termination{GracePeriod: grace, MinDrain: p.MinDrain, QuietTime: p.Quiet, Patient: p.Patient, IdleGrace: p.Idle, FailReadinessAfter: Never}
}
