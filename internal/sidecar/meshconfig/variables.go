package meshconfig

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/drain"
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
	for _, s := range table {
		if !s.Field && !s.ContainerOnly {
			names = append(names, s.Name)
		}
	}
	return names
}()

// CompatIstio is the LASTCALL_COMPAT (and --compat) that selects Istio's own behaviour and defaults.
const CompatIstio = "istio"

const acceptsCompat = `"istio", or "" for lastcall's own behaviour`

// entry is one setting as text, from the environment or from proxyMetadata.
type entry struct {
	text   string
	source Source
	path   string
}

// readVariable parses the winning text of a variable.
func readVariable[T any](r *resolver, name string, fallback T, accepts string, parse func(string) (T, bool)) Value[T] {
	e, ok := r.variable(name)
	if !ok {
		return Value[T]{Value: fallback}
	}
	value, ok := parse(e.text)
	if !ok {
		r.fail(&FieldError{Field: e.path, Value: strconv.Quote(brief(e.text)), Source: e.source, Accepts: accepts})
		value = fallback
	}
	return Value[T]{Value: value, Source: e.source, Path: e.path}
}

// Booleans are parsed by strconv.ParseBool, as in Istio's env package. (Istio logs an invalid one and uses the default;
// here it is an error.)
const acceptsBool = "true or false (or 1, t, T, TRUE, True, 0, f, F, FALSE, False)"

func parseBool(text string) (bool, bool) {
	value, err := strconv.ParseBool(text)
	return value, err == nil
}

func oneOf(values ...string) func(text string) (string, bool) {
	return func(text string) (string, bool) { return text, slices.Contains(values, text) }
}

const acceptsApp = `"finishes", "exits" or "auto"`

func parseApp(text string) (drain.AppEnd, bool) {
	app, err := drain.ParseAppEnd(text)
	return app, err == nil
}

const acceptsEndless = `"wait" (until the last call) or "close" (when the draining phase ends)`

const acceptsCloseCode = "1001 (going away) or 1012 (service restart)"

func parseCloseCode(text string) (int, bool) {
	return map[string]int{"1001": 1001, "1012": 1012}[text], text == "1001" || text == "1012"
}

const acceptsMediaTypes = "media types, comma-separated, such as application/x-ndjson"

func parseMediaTypes(text string) ([]string, bool) {
	types := []string{}
	for _, t := range strings.Split(strings.ToLower(text), ",") {
		t = strings.TrimSpace(t)
		if kind, name, ok := strings.Cut(t, "/"); !ok || kind == "" || name == "" || strings.ContainsAny(name, "/; ") {
			return nil, false
		}
		types = append(types, t)
	}
	return types, true
}

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
