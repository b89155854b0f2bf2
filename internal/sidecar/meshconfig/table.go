package meshconfig

import (
	"slices"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// Setting describes one thing that users configure. The table of all of them is the single source of --help, of
// docs/configuration.md, and of the table in docs/how.md.
type Setting struct {
	Name          string   // the environment variable, or the field of Istio's ProxyConfig
	Field         bool     // a field of ProxyConfig; all others are environment variables
	ContainerOnly bool     // read from the container's environment and not from proxyMetadata
	Flag          string   // overrides it; without its dashes, empty for none
	Type          string   // placeholder of the flag's value: "duration", "bool", …
	Values        []string // all that it may have
	Default       string   // the built-in value as text; empty for none
	Group         string   // the heading under which --help lists it
	Usage         string   // what it does, in one sentence without a full stop

	kind kind // nil: ContainerOnly
}

// The headings of the table.
const (
	GroupTimers  = "Drain timers"
	GroupEndings = "Ending long-lived connections"
	GroupIstio   = "Istio compatibility"
	GroupPod     = "Pod and app"
	GroupSystem  = "Service manager and runtime"
)

// Leave is the last-call margin of a hook without an agent, with another default.
var Leave = Setting{Name: VariableMargin, Flag: "last-call-margin", Type: "duration",
	Default: timers.DefaultLeave.String(),
	Usage:   "return this long before SIGKILL, for the app to end; at most a quarter of the grace period"}

// Table lists all settings, in the order in which they are documented. Do not change it.
func Table() []Setting { return table }

var table = []Setting{
	{Name: VariableMinimumDrain, Flag: "minimum-drain", Type: "duration",
		Default: drain.DefaultMinimumDrain.String(), Group: GroupTimers,
		Usage: "accept new connections for at least this long after SIGTERM",
		kind:  duration(func(s *Settings) *Value[time.Duration] { return &s.MinimumDrain })},
	{Name: VariableQuietTime, Flag: "quiet-time", Type: "duration",
		Default: drain.DefaultQuietTime.String(), Group: GroupTimers,
		Usage: "end the draining phase once no connection or request has arrived for this long; extends the minimum drain, up to a third of the grace period",
		kind:  duration(func(s *Settings) *Value[time.Duration] { return &s.QuietTime })},
	{Name: VariableIdleGrace, Flag: "idle-grace", Type: "duration",
		Default: drain.DefaultIdleGrace.String(), Group: GroupTimers,
		Usage: "close a keep-alive connection that has been idle for this long",
		kind:  duration(func(s *Settings) *Value[time.Duration] { return &s.IdleGrace })},
	{Name: VariableGracePeriod, Flag: "grace-period", Type: "duration", Default: "30", Group: GroupTimers,
		Usage: "the pod's terminationGracePeriodSeconds: the time from SIGTERM to SIGKILL; the variable takes seconds without a unit",
		kind:  gracePeriod(func(s *Settings) *Value[time.Duration] { return &s.GracePeriod })},
	{Name: VariableMargin, Flag: "last-call-margin", Type: "duration",
		Default: drain.DefaultMargin.String(), Group: GroupTimers,
		Usage: "end the remaining requests this long before SIGKILL; at most a quarter of the grace period",
		kind:  duration(func(s *Settings) *Value[time.Duration] { return &s.Margin })},
	{Name: variableSpread, Flag: "last-call-spread", Type: "duration", Default: "0s", Group: GroupTimers,
		Usage: "spread these endings over this part of the margin, so that clients do not all reconnect at once; 0s for half of it or more, by their number",
		kind:  duration(func(s *Settings) *Value[time.Duration] { return &s.Spread })},
	{Name: VariableRestartWait, Flag: "restart-wait", Type: "duration",
		Default: timers.DefaultRestartWait.String(), Group: GroupTimers,
		Usage: "hold a new connection for this long while an app container restarts, or the app of `lastcall run` starts, then answer 503",
		kind:  duration(func(s *Settings) *Value[time.Duration] { return &s.RestartWait })},
	{Name: VariableExitOnZero, Flag: "exit-on-zero", Type: "bool", Values: []string{"true", "false"}, Default: "true",
		Group: GroupTimers,
		Usage: "exit as soon as no connection is busy; false: wait for --termination-drain-duration, then exit",
		kind:  boolean(func(s *Settings) *Value[bool] { return &s.ExitOnZero })},
	{Name: fieldTerminationDrain, Field: true, Flag: "termination-drain-duration", Type: "duration",
		Default: drain.DefaultTerminationDrain.String(), Group: GroupTimers,
		Usage: "how long to wait with --exit-on-zero=false",
		kind:  duration(func(s *Settings) *Value[time.Duration] { return &s.TerminationDrain })},
	{Name: fieldDrain, Field: true, Flag: "drain-duration", Type: "duration", Default: "45s", Group: GroupTimers,
		Usage: "Envoy's --drain-time-s, and with --compat istio the time during which new connections are accepted; whole seconds",
		kind:  wholeSeconds(func(s *Settings) *Value[time.Duration] { return &s.DrainDuration })},

	{Name: VariableApp, Flag: "app", Type: "finishes|exits|auto", Values: []string{"finishes", "exits", "auto"},
		Default: "auto", Group: GroupEndings,
		Usage: "what the app does at its SIGTERM with connections that only it can end (its own TLS, opaque TCP): " +
			"finishes (it answers and closes them, so it gets its SIGTERM when the draining phase " +
			"ends), exits (they stay until the last call) or auto (it gets its SIGTERM 3s before the last call)",
		kind: appEnd(func(s *Settings) *Value[drain.AppEnd] { return &s.App })},
	{Name: variableWebSocket, Flag: "websocket", Type: "wait|close", Values: []string{"wait", "close"}, Default: "wait",
		Group: GroupEndings,
		Usage: "when a drain closes WebSockets: wait (at the last call) or close (when the draining phase ends)",
		kind:  endless(func(s *Settings) *Value[string] { return &s.WebSocket })},
	{Name: variableWebSocketClose, Flag: "websocket-close", Type: "1001|1012", Values: []string{"1001", "1012"},
		Default: strconv.Itoa(ws.CloseAtLastCall), Group: GroupEndings,
		Usage: "status code of the close frame: 1001 (going away) or 1012 (service restart)",
		kind:  closeCode(func(s *Settings) *Value[int] { return &s.WebSocketClose })},
	{Name: variableEventStreams, Flag: "event-streams", Type: "wait|close", Values: []string{"wait", "close"},
		Default: "wait", Group: GroupEndings,
		Usage: "the same as --websocket for server-sent events that answer a GET, and for the long polls of Socket.IO",
		kind:  endless(func(s *Settings) *Value[string] { return &s.EventStreams })},
	{Name: variableEndlessTypes, Flag: "endless-types", Type: "types", Group: GroupEndings,
		Usage: "media types, separated by commas, whose responses to a GET end as event streams do, such as application/x-ndjson",
		kind:  mediaTypes(func(s *Settings) *Value[[]string] { return &s.EndlessTypes })},

	{Name: VariableCompat, Flag: "compat", Type: "istio", Values: []string{CompatIstio}, Group: GroupIstio,
		Usage: "istio: behave as Istio's agent does, with its defaults",
		kind: oneOf(func(s *Settings) *Value[string] { return &s.Compat },
			`"istio", or "" for lastcall's own behaviour`, "", CompatIstio)},
	{Name: VariableProxyConfig, ContainerOnly: true, Group: GroupIstio,
		Usage: "Istio's ProxyConfig as YAML or JSON, as its injector writes it"},
	{Name: VariableProbes, ContainerOnly: true, Group: GroupIstio,
		Usage: "the app's probes that the status port answers, as Istio's injector writes them"},
	{Name: variableOldTerminationDrain, ContainerOnly: true, Group: GroupIstio,
		Usage: "removed from Istio; has no effect except a warning. Use terminationDrainDuration"},

	{Name: VariableAppContainers, ContainerOnly: true, Flag: "app-containers", Type: "int", Default: "1",
		Group: GroupPod,
		Usage: "number of app containers in the pod: a classic sidecar keeps outbound connections until all of them have ended"},
	{Name: "LASTCALL_HOOK_TOKEN", ContainerOnly: true, Group: GroupPod,
		Usage: "enables GET :15020/wait/TOKEN, the httpGet preStop hook of app containers"},
	{Name: VariableSidecarToken, ContainerOnly: true, Group: GroupPod,
		Usage: "the same for the preStop hook of the sidecar itself, which reports the end of the pod"},
	{Name: "LASTCALL_IGNORE_FROM", ContainerOnly: true, Flag: "ignore-from", Type: "CIDR,…", Group: GroupPod,
		Usage: "lastcall wait --ports: clients that do not count, such as probes"},
	{Name: "PORT", ContainerOnly: true, Group: GroupPod,
		Usage: "set by lastcall run for the app: the port of the first --inbound"},

	{Name: "NOTIFY_SOCKET", ContainerOnly: true, Group: GroupSystem,
		Usage: "set by systemd (Type=notify): lastcall run reports READY, STOPPING and the watchdog to it"},
	{Name: "GOGC", ContainerOnly: true, Default: "50", Group: GroupSystem,
		Usage: "garbage collector target of the Go runtime"},
}

// settings are all settings: those of Table, and the fields of ProxyConfig that docs/configuration.md does not list.
var settings = append(slices.DeleteFunc(slices.Clone(table), func(s Setting) bool { return s.kind == nil }),
	Setting{Name: fieldStatusPort, Field: true, Default: strconv.Itoa(istio.StatusPort),
		kind: port(func(s *Settings) *Value[int] { return &s.StatusPort })},
	Setting{Name: fieldAdminPort, Field: true, Default: strconv.Itoa(istio.AdminPort),
		kind: port(func(s *Settings) *Value[int] { return &s.AdminPort })},
	Setting{Name: fieldConcurrency, Field: true,
		kind: threads(func(s *Settings) *Value[*int] { return &s.Concurrency })},
	Setting{Name: fieldHold, Field: true,
		kind: optional(func(s *Settings) *Value[*bool] { return &s.HoldApplication })},
	Setting{Name: fieldStatsMatcher + ".inclusionPrefixes", Field: true,
		kind: list(func(s *Settings) *Value[[]string] { return &s.StatsPrefixes })},
	Setting{Name: fieldStatsMatcher + ".inclusionSuffixes", Field: true,
		kind: list(func(s *Settings) *Value[[]string] { return &s.StatsSuffixes })},
	Setting{Name: fieldStatsMatcher + ".inclusionRegexps", Field: true,
		kind: expressions(func(s *Settings) *Value[[]string] { return &s.StatsRegexps })},
)

// settingOf is the setting of a variable or a field.
func settingOf(name string) (Setting, bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return settings[i], true
}

// FlagOverrides reports the setting that a flag overrides.
func FlagOverrides(flag string) (Setting, bool) {
	for _, s := range Table() {
		if s.Flag == flag && flag != "" {
			return s, true
		}
	}
	return Setting{}, false
}
