package peers

import (
	"context"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Istio's pilot-agent, istio/istio, pkg/envoy/agent.go and admin.go (1.30), with the
// defaults of ProxyConfig and of the process's environment.
const (
	istioDrainTime        = 45 * time.Second // drainDuration
	istioTerminationDrain = 5 * time.Second  // terminationDrainDuration
	istioMinimumDrain     = 5 * time.Second  // MINIMUM_DRAIN_DURATION
	istioPoll             = time.Second      // activeConnectionCheckDelay
	istioRetries          = 5                // polls in a row that may fail
	istioPollTimeout      = 2 * time.Second
)

func istio() []Peer {
	const source = "istio/istio, pkg/envoy/agent.go"
	base := Peer{
		Source: source, form: sidecar, app: strategy.ClosesListener, grace: defaultGrace,
		envoyArgs: []string{"--drain-time-s", "45", "--drain-strategy", "immediate"},
	}
	fixed, onZero, native := base, base, base
	fixed.Name, fixed.Words = "istio-default", "sleeps terminationDrainDuration (5 s), then kills Envoy"
	fixed.atTerm, fixed.original = istioFixed, strategy.Fixed
	fixed.expect = afterFixed(istioTerminationDrain)

	onZero.Name, onZero.Words = "istio-exit-on-zero", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS: sleeps 5 s, then counts connections each second; no deadline"
	onZero.atTerm, onZero.original = istioOnZero, strategy.ExitOnZero
	onZero.expect = expectIstioOnZero

	native.Name, native.Words = "istio-native", "native sidecar: /drain in its preStop; at SIGTERM, after the app's end, it exits at once"
	native.form, native.preStop, native.atTerm, native.original = nativeSidecar, istioDrain, exitAtOnce, strategy.IstioNative
	native.expect = afterApp

	nativeExit := native
	nativeExit.Name, nativeExit.Words = "istio-native-exit", "the same with an app that exits at SIGTERM: nothing delays it"
	nativeExit.app = strategy.Exits
	return []Peer{fixed, onZero, native, nativeExit}
}

// exitAtOnce is for an agent that has already drained.
func exitAtOnce(context.Context, admin) {}

// istioDrain is POST /drain of the status server: it returns when Envoy has
// answered, and the listeners still accept.
func istioDrain(ctx context.Context, a admin) {
	_ = a.post(ctx, "/drain_listeners?inboundonly&graceful&skip_exit")
}

func istioFixed(ctx context.Context, a admin) {
	_ = a.post(ctx, "/drain_listeners?inboundonly&graceful")
	sleep(ctx, istioTerminationDrain)
}

// istioOnZero polls first a second after the minimum drain. After five failures in a row it assumes zero connections.
func istioOnZero(ctx context.Context, a admin) {
	_ = a.post(ctx, "/drain_listeners?inboundonly&graceful")
	// The real sleep cannot be interrupted: an Envoy that has exited is noticed at the first tick.
	if !sleep(ctx, istioMinimumDrain) {
		return
	}
	tick := time.NewTicker(istioPoll)
	defer tick.Stop()
	for failed := 0; failed < istioRetries; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		active, err := istioActive(ctx, a)
		switch {
		case err != nil:
			failed++
		case active <= 0: // 0, or -1: not available
			return
		default:
			failed = 0
		}
	}
}

// istioKnown are listeners that are not counted, by the names that Istio knows.
var istioKnown = map[string]bool{
	"listener.0.0.0.0_15021": true, "listener.0.0.0.0_15090": true,
	"listener.admin": true, "listener.admin.main_thread": true,
}

// istioActive counts the connections of inbound and outbound listeners; -1 when there
// is no such stat.
func istioActive(ctx context.Context, a admin) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, istioPollTimeout)
	defer cancel()
	body, err := a.get(ctx, "/stats?usedonly&filter=downstream_cx_active$")
	if err != nil {
		return 0, err
	}
	if len(body) == 0 {
		return -1, nil
	}
	sum := 0
	statLines(body, func(name string, value int) {
		listener, is := strings.CutSuffix(name, ".downstream_cx_active")
		if is && strings.HasPrefix(name, "listener.") && !strings.Contains(name, "worker_") &&
			!strings.HasPrefix(name, "listener.envoy_internal_") && !istioKnown[listener] {
			sum += value
		}
	})
	return sum, nil
}

// expectIstioOnZero: the tick after the last connection. Envoy closes idle
// connections in the last third of its drain time, so that the kubelet is first.
func expectIstioOnZero(c circumstances) expectation {
	gone := lag.At(max(c.left, istioMinimumDrain+istioPoll))
	if c.left > gone.From-istioPoll {
		gone.To += istioPoll
	}
	if c.scene == KeepAlive {
		// REFERENCE: 36 to 46 s with drainDuration 45 s.
		gone = gone.AtLeast(lag.Between(istioDrainTime*2/3, istioDrainTime+2*time.Second))
	}
	return waits(c, c.grace, gone).before(c.grace)
}
