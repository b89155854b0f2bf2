package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Preset is what is known of a kind of load balancer: how late it learns.
type Preset struct {
	Name     string
	Reason   string // where MinDrain comes from
	MinDrain time.Duration
	Quiet    time.Duration
	Idle     time.Duration

	// Patient lets the quiet time extend the drain to two thirds of what there is
	// until the last call.
	Patient bool
}

// apiLag is how long a cloud takes from an endpoint's end to the deregistration of its
// target: users' folklore of the AWS load balancer controller (issues 1064, 1719, 2366).
const apiLag = 10 * time.Second

// DefaultDeregistrationDelay is that of AWS target groups.
const DefaultDeregistrationDelay = 300 * time.Second

// Presets are what --load-balancer knows. deregistration is the target group's
// deregistration_delay.timeout_seconds, for alb.
func Presets(deregistration time.Duration) []Preset {
	return []Preset{
		{"nlb", "an NLB \"can send traffic to drained targets up to 180 seconds even after completely drained\" (istio issue 35964), and deregisters them up to 10 s after the endpoint has gone",
			180*time.Second + apiLag, drain.DefaultQuietTime, drain.DefaultIdleGrace, false},
		{"alb", "an ALB keeps its connections for the deregistration delay, which begins up to 10 s after the endpoint has gone (aws-load-balancer-controller issues 1064, 1719, 2366)",
			deregistration + apiLag, drain.DefaultQuietTime, drain.DefaultIdleGrace, false},
		{"gke", "GKE's health check takes 2 x 3 s to fail, which cannot be set (Envoy Gateway issue 9210); the quiet time beside covers the endpoint's way to the node",
			2 * 3 * time.Second, drain.DefaultQuietTime, drain.DefaultIdleGrace, false},
		{"cloudflare", "Cloudflare probes every 60 s, and answers 521 until then (cilium issue 45205)",
			60 * time.Second, drain.DefaultQuietTime, drain.DefaultIdleGrace, false},
		{"adaptive", "whatever stands in front: until no new request has come for the quiet time (traefik issue 13907), longer than GKE's 6 s, as long as a cloud's API lag",
			drain.DefaultMinimumDrain, apiLag, drain.DefaultIdleGrace, true},
		{"none", "nobody stands in front that would have to learn: it leaves when nothing is in flight",
			0, 0, 0, false},
	}
}

// PresetNamed finds one.
func PresetNamed(name string, deregistration time.Duration) (Preset, error) {
	var names []string
	for _, p := range Presets(deregistration) {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("there is no load balancer %q: accepted are %s", name, strings.Join(names, ", "))
}

// Termination is the preset's.
func (p Preset) Termination(grace time.Duration) Termination {
	return Termination{GracePeriod: grace, MinDrain: p.MinDrain, QuietTime: p.Quiet, Patient: p.Patient, IdleGrace: p.Idle, FailReadinessAfter: Never}
}
