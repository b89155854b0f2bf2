package meshconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Settings is the result: every value with its source. doc.go and Table describe them.
type Settings struct {
	TerminationDrain Value[time.Duration] // terminationDrainDuration, 0 or more
	DrainDuration    Value[time.Duration] // drainDuration, whole seconds, 1 or more

	AdminPort       Value[int]   // proxyAdminPort, 1 to 65535
	StatusPort      Value[int]   // statusPort, 1 to 65535
	Concurrency     Value[*int]  // concurrency, 0 or more; nil when not set
	HoldApplication Value[*bool] // holdApplicationUntilProxyStarts; nil when not set

	StatsPrefixes Value[[]string] // proxyStatsMatcher.inclusionPrefixes
	StatsSuffixes Value[[]string] // proxyStatsMatcher.inclusionSuffixes
	StatsRegexps  Value[[]string] // proxyStatsMatcher.inclusionRegexps

	ExitOnZero   Value[bool]          // EXIT_ON_ZERO_ACTIVE_CONNECTIONS
	MinimumDrain Value[time.Duration] // MINIMUM_DRAIN_DURATION, 0 or more
	GracePeriod  Value[time.Duration] // TERMINATION_GRACE_PERIOD_SECONDS, whole seconds, 1 or more
	QuietTime    Value[time.Duration] // LASTCALL_QUIET_TIME, 0 or more
	Margin       Value[time.Duration] // LASTCALL_LAST_CALL_MARGIN, 0 or more
	IdleGrace    Value[time.Duration] // LASTCALL_IDLE_GRACE, 0 or more
	Compat       Value[string]        // LASTCALL_COMPAT: "" or CompatIstio
	RestartWait  Value[time.Duration] // LASTCALL_RESTART_WAIT, 0 or more

	App            Value[drain.AppEnd]  // LASTCALL_APP
	Spread         Value[time.Duration] // LASTCALL_LAST_CALL_SPREAD, 0 or more; 0: half of the last call
	WebSocket      Value[string]        // LASTCALL_WEBSOCKET: "wait" or "close"
	WebSocketClose Value[int]           // LASTCALL_WEBSOCKET_CLOSE: 1001 or 1012
	EventStreams   Value[string]        // LASTCALL_EVENT_STREAMS: "wait" or "close"
	EndlessTypes   Value[[]string]      // LASTCALL_ENDLESS_TYPES, in lower case

	ScrapeTarget Value[string]     // URL of the app's own metrics; empty: none
	Proxy        map[string]any    // the merged ProxyConfig as it was written, without proxyMetadata
	Metadata     map[string]string // the merged proxyMetadata
	Annotations  map[string]string // of the pod, all of them; nil without their file
	Warnings     []Warning         // in the order of the layers, then of the whole
}

// Mode is the mode of the drain under these settings.
func (s *Settings) Mode() drain.Mode {
	switch {
	case !s.ExitOnZero.Value:
		return drain.Fixed
	case s.Compat.Value == CompatIstio:
		return drain.IstioExitOnZero
	}
	return drain.ExitOnZero
}

// Drain is the configuration of a termination under these settings.
func (s *Settings) Drain() drain.Config {
	config := drain.DefaultConfig()
	config.Mode = s.Mode()
	config.TerminationDrain = s.TerminationDrain.Value
	config.MinimumDrain = s.MinimumDrain.Value
	config.QuietTime = s.QuietTime.Value
	config.IdleGrace = s.IdleGrace.Value
	config.GracePeriod = s.GracePeriod.Value
	config.Margin = s.Margin.Value
	config.App = s.App.Value
	return config
}

// ProxyConfig is the merged ProxyConfig as JSON, proxyMetadata included, as Istio's injector writes PROXY_CONFIG; empty
// when it has nothing but defaults.
func (s *Settings) ProxyConfig() string {
	if len(s.Proxy)+len(s.Metadata) == 0 {
		return ""
	}
	config := maps.Clone(s.Proxy)
	defaults, _ := Resolve(Input{})
	for i := range settings {
		one := &settings[i]
		if reflect.DeepEqual(one.kind.row(s, one).Value, one.kind.row(defaults, one).Value) {
			delete(config, one.Name)
		}
	}
	if len(s.Metadata) > 0 {
		config[fieldMetadata] = s.Metadata
	}
	if len(config) == 0 {
		return ""
	}
	return literal(config)
}

// Environ is env with the proxyMetadata that it lacks, for a process that lastcall starts. An empty variable counts as
// not set.
func (s *Settings) Environ(env []string) []string {
	own := environment(env)
	out := make([]string, 0, len(env)+len(s.Metadata))
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		if _, isSet := s.Metadata[name]; isSet && own[name] == "" {
			continue
		}
		out = append(out, pair)
	}
	for _, name := range sortedKeys(s.Metadata) {
		if own[name] == "" {
			out = append(out, name+"="+s.Metadata[name])
		}
	}
	return out
}

// adviseCombination warns of settings that have no effect in the current mode.
func (r *resolver) adviseCombination(s *Settings) {
	unused := func(v Value[time.Duration], format string, args ...any) {
		if v.IsSet() {
			r.warn(v.Source, v.Path, format, args...)
		}
	}
	mode := s.Mode()
	switch {
	case mode == drain.Fixed:
		unused(s.MinimumDrain, "not used with %s=false: the wait is %s (%v)", VariableExitOnZero, fieldTerminationDrain,
			s.TerminationDrain.Value)
	case s.ExitOnZero.IsSet():
		unused(s.TerminationDrain, "not used with %s=true, as in Istio; set it to false to wait for this time",
			VariableExitOnZero)
	default:
		unused(s.TerminationDrain, "not used: lastcall leaves as soon as nothing is in flight, "+
			"and always before the grace period (%v) ends; set %s=false in "+
			"proxyMetadata to wait for this time instead", s.GracePeriod.Value, VariableExitOnZero)
	}
	if mode != drain.ExitOnZero {
		for _, v := range []Value[time.Duration]{s.QuietTime, s.Margin, s.IdleGrace} {
			unused(v, "not used in mode %v, which does as Istio does", mode)
		}
	}
	if most := s.Margin.Value / 3; mode == drain.ExitOnZero && s.Spread.Value > most {
		unused(s.Spread, "more than there is room for: about %v are taken; raise %s (%v) to three times of it",
			most.Round(time.Millisecond), VariableMargin, s.Margin.Value)
	}
	if s.StatusPort.Value == s.AdminPort.Value {
		r.warn(s.StatusPort.Source, fieldStatusPort, "%d is also %s: only one of them can use the port", s.StatusPort.Value,
			fieldAdminPort)
	}
}

// row is one line of the printed settings.
type row struct {
	Setting string `json:"setting"`
	Value   any    `json:"value"`
	Source  string `json:"source"`
	Path    string `json:"path,omitempty"`
	Line    int    `json:"line,omitempty"`
}

func (v value[T]) row(s *Settings, one *Setting) row {
	it := v.in(s)
	out := row{Setting: one.Name, Value: it.Value, Source: it.Source.String(), Line: it.Source.Line}
	if it.Path != one.Name {
		out.Path = it.Path
	}
	switch value := any(it.Value).(type) {
	case time.Duration:
		out.Value = value.String()
		if one.Name == VariableGracePeriod {
			out.Value = int(value / time.Second)
		}
	case []string:
		if value == nil {
			out.Value = []string{}
		}
	}
	return out
}

func (s *Settings) rows() (rows []row) {
	for i := range settings {
		rows = append(rows, settings[i].kind.row(s, &settings[i]))
	}
	target := &Setting{Name: annotationScrape}
	return append(rows, value[string]{in: func(s *Settings) *Value[string] { return &s.ScrapeTarget }}.row(s, target))
}

// notes are the warnings, and the timers that contradict each other.
func (s *Settings) notes() []string {
	notes := []string{}
	for _, w := range s.Warnings {
		notes = append(notes, w.String())
	}
	return append(notes, s.Drain().Contradictions()...)
}

// WriteText prints the settings as a table of setting, value and source, then the warnings and the timers that
// contradict each other.
func (s *Settings) WriteText(w io.Writer) error {
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "SETTING\tVALUE\tSOURCE\n")
	for _, r := range s.rows() {
		value, ok := r.Value.(string)
		if !ok || value == "" {
			value = literal(r.Value)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Setting, value, r.Source)
	}
	_ = table.Flush() // a Buffer has no errors
	fmt.Fprintf(&b, "\nmode: %v\n", s.Mode())
	for _, note := range s.notes() {
		fmt.Fprintf(&b, "warning: %s\n", note)
	}
	if _, err := b.WriteTo(w); err != nil {
		return fmt.Errorf("print settings: %w", err)
	}
	return nil
}

// MarshalJSON gives {"mode", "settings": [{"setting", "value", "source"}], "warnings": [text]}. Durations are text with
// units, the grace period is a number of seconds; "path" and "line" are there where they add something.
func (s *Settings) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Mode     string   `json:"mode"`
		Settings []row    `json:"settings"`
		Warnings []string `json:"warnings"`
	}{s.Mode().String(), s.rows(), s.notes()})
}
