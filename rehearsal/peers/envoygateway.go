package peers

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Envoy Gateway's shutdown manager, envoyproxy/gateway,
// internal/cmd/envoy/shutdown_manager.go, with the defaults of EnvoyProxy's
// spec.shutdown; the grace period is drainTimeout and 300 s
// (internal/infrastructure/kubernetes/proxy/resource_provider.go).
const (
	egDrainTimeout = 60 * time.Second // drainTimeout
	egMinimumDrain = 10 * time.Second // minDrainDuration
	egExitAt       = 0                // exitAtConnections
	egPoll         = time.Second      // of the connections
	egReadyPoll    = time.Second      // for the file that marks its end
	egGrace        = egDrainTimeout + 300*time.Second
)

func envoyGateway() []Peer {
	return []Peer{{
		Name: "envoy-gateway", Source: "envoyproxy/gateway, internal/cmd/envoy/shutdown_manager.go",
		Words: "shutdown manager: counts connections each second, 10 s at least and 60 s at most; the hook looks each second",
		form:  managed, app: strategy.ClosesListener, grace: egGrace,
		envoyArgs: []string{"--drain-time-s", "60", "--drain-strategy", "immediate"},
		manager: func() hooks {
			var ready atomic.Bool // the file /tmp/shutdown-ready
			return hooks{
				manager: func(ctx context.Context, a admin) {
					if egShutdown(ctx, a) {
						ready.Store(true)
					}
				},
				envoy: func(ctx context.Context) { awaitSign(ctx, &ready, egReadyPoll) },
			}
		},
		expect: expectEnvoyGateway,
	}}
}

// awaitSign looks for a file from time to time, as shutdown managers' hooks do.
func awaitSign(ctx context.Context, sign *atomic.Bool, poll time.Duration) {
	for !sign.Load() && sleep(ctx, poll) {
	}
}

// egShutdown is the manager's preStop; false when it did not get to its end.
func egShutdown(ctx context.Context, a admin) bool {
	began := time.Now()
	_ = a.post(ctx, "/healthcheck/fail")
	for {
		elapsed := time.Since(began)
		open, err := egOpen(ctx, a)
		switch {
		case elapsed > egDrainTimeout:
			return true
		case elapsed > egMinimumDrain && err == nil && open <= egExitAt:
			return true
		}
		if !sleep(ctx, egPoll) {
			return false
		}
	}
}

// egSkip is not anchored in the original either.
var egSkip = regexp.MustCompile(`admin|19001|19003|worker`)

// egOpen counts the connections of all listeners but those.
func egOpen(ctx context.Context, a admin) (int, error) {
	body, err := a.get(ctx, `/stats?filter=^listener\..*\.downstream_cx_active$&format=json`)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Stats []struct {
			Name  string
			Value int
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, err
	}
	if len(answer.Stats) == 0 {
		return 0, errors.New("no stats found")
	}
	sum := 0
	for _, s := range answer.Stats {
		if !egSkip.MatchString(strings.TrimSpace(s.Name)) {
			sum += s.Value
		}
	}
	return sum, nil
}

// expectEnvoyGateway: the poll after the last connection and the minimum drain,
// then the hook's look. Failing health checks closes no idle connection.
func expectEnvoyGateway(c circumstances) expectation {
	over := lag.Between(max(c.left, egMinimumDrain), max(c.left, egMinimumDrain)+egPoll)
	if c.scene == KeepAlive || c.left > egDrainTimeout {
		over = lag.Between(egDrainTimeout, egDrainTimeout+egPoll)
	}
	s := waits(c, egDrainTimeout, lag.Between(over.From, over.To+egReadyPoll))
	s.late = true
	return s.before(c.grace)
}
