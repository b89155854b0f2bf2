package meshconfig

import (
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/timers"
)

// The environment variables that are settings, Istio's first.
const (
	VariableExitOnZero   = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"
	VariableMinimumDrain = timers.MinimumDrain
	VariableGracePeriod  = timers.GracePeriod
	VariableQuietTime    = timers.QuietTime
	VariableMargin       = timers.Margin
	VariableIdleGrace    = timers.IdleGrace
	VariableCompat       = "LASTCALL_COMPAT"
	VariableRestartWait  = "LASTCALL_RESTART_WAIT"

	VariableApp            = "LASTCALL_APP"
	variableSpread         = "LASTCALL_LAST_CALL_SPREAD"
	variableWebSocket      = "LASTCALL_WEBSOCKET"
	variableWebSocketClose = "LASTCALL_WEBSOCKET_CLOSE"
	variableEventStreams   = "LASTCALL_EVENT_STREAMS"
	variableEndlessTypes   = "LASTCALL_ENDLESS_TYPES"

	VariableProxyConfig   = "PROXY_CONFIG"
	VariablePrometheus    = "ISTIO_PROMETHEUS_ANNOTATIONS"
	VariableProbes        = "ISTIO_KUBE_APP_PROBERS"
	VariableAppContainers = "LASTCALL_APP_CONTAINERS"
	VariableSidecarToken  = "LASTCALL_SIDECAR_TOKEN"

	// No longer read by Istio; terminationDrainDuration took its place.
	variableOldTerminationDrain = "TERMINATION_DRAIN_DURATION_SECONDS"
)

// variables are those that the environment or proxyMetadata may set.
var variables = func() (names []string) {
	for _, s := range settings {
		if !s.Field {
			names = append(names, s.Name)
		}
	}
	return names
}()

// CompatIstio is the LASTCALL_COMPAT (and --compat) that selects Istio's own behaviour and defaults.
const CompatIstio = "istio"

// environment is the container's own, by name. Later entries of the same name
// win, as in os/exec; an empty variable counts as not set.
func environment(env []string) map[string]string {
	out := make(map[string]string, len(env))
	for _, pair := range env {
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case ok && value == "":
			delete(out, name)
		case ok:
			out[name] = value
		}
	}
	return out
}

// adviseVariable warns of obsolete variables and misspelt ones, in every source.
func (f *findings) adviseVariable(name string, src Source, path string) {
	if name == variableOldTerminationDrain {
		f.warn(src, path, "removed from Istio, has no effect: write %s in the ProxyConfig instead", fieldTerminationDrain)
		return
	}
	if isVariable(name) || len(name) < 8 {
		return
	}
	if meant, ok := Nearest(name, variables); ok {
		f.warn(src, path, "unknown setting, has no effect on lastcall: did you mean %s?", meant)
	}
}

func isVariable(name string) bool {
	return slices.Contains(variables, name)
}
