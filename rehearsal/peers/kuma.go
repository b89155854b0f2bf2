package peers

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Kuma's kuma-dp, kumahq/kuma, app/kuma-dp/cmd/run.go and
// app/kuma-dp/pkg/dataplane/envoy/envoy.go: Envoy is started with --drain-time-s, and
// killed in the end (exec.CommandContext). Sidecars are native, with a preStop that
// drains (pkg/plugins/runtime/k8s/webhooks/injector/injector.go).
const kumaDrainTime = 30 * time.Second // KUMA_DATAPLANE_DRAIN_TIME

func kuma() []Peer {
	base := Peer{
		Source: "kumahq/kuma, app/kuma-dp/cmd/run.go", app: strategy.ClosesListener, grace: defaultGrace,
		envoyArgs: []string{"--drain-time-s", "30"},
	}
	side, front := base, base
	side.Name, side.Words = "kuma-sidecar", "native sidecar: its preStop drains; at SIGTERM, after the app's end, it exits at once"
	side.form, side.preStop, side.atTerm = nativeSidecar, kumaDrain, exitAtOnce
	side.expect = afterApp

	exit := side
	exit.Name, exit.Words = "kuma-sidecar-exit", "the same with an app that exits at SIGTERM"
	exit.app = strategy.Exits

	front.Name, front.Words = "kuma-gateway", "fails health checks, then sleeps the drain time (30 s), which is the grace period as well"
	front.form, front.atTerm = gateway, kumaGateway
	front.expect = func(c circumstances) expectation {
		s := afterFixed(kumaDrainTime)(c)
		s.late = true
		return s
	}
	return []Peer{side, exit, front}
}

// kumaDrain is what SIGUSR2 of the preStop (killall -USR2 kuma-dp) makes it do.
func kumaDrain(ctx context.Context, a admin) {
	_ = a.post(ctx, "/drain_listeners?inboundonly&graceful&skip_exit")
}

func kumaGateway(ctx context.Context, a admin) {
	_ = a.post(ctx, "/healthcheck/fail")
	sleep(ctx, kumaDrainTime)
}
