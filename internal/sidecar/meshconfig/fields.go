package meshconfig

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// The fields of ProxyConfig that lastcall uses, by their JSON names.
const (
	fieldTerminationDrain = "terminationDrainDuration"
	fieldDrain            = "drainDuration"
	fieldAdminPort        = "proxyAdminPort"
	fieldStatusPort       = "statusPort"
	fieldConcurrency      = "concurrency"
	fieldHold             = "holdApplicationUntilProxyStarts"
	fieldStatsMatcher     = "proxyStatsMatcher"
	fieldMetadata         = "proxyMetadata"
	fieldDefaultConfig    = "defaultConfig" // MeshConfig's ProxyConfig
)

// statsParts are the lists of proxyStatsMatcher.
var statsParts = []string{"inclusionPrefixes", "inclusionSuffixes", "inclusionRegexps"}

// proxyFields are all fields of ProxyConfig: of istio.io/api 1.31, and parentShutdownDuration, which Istio removed in
// 2022 and manifests still have. Those without a setting have no effect here.
var proxyFields = strings.Fields(`availabilityZone binaryPath caCertificatesPem concurrency configPath
	connectionSettings controlPlaneAuthPolicy customConfigFile discoveryAddress discoveryRefreshDelay drainDuration
	envoyAccessLogService envoyMetricsService envoyMetricsServiceAddress extraStatTags fileFlushInterval fileFlushMinSizeKb
	gatewayTopology holdApplicationUntilProxyStarts image interceptionMode meshId parentShutdownDuration privateKeyProvider
	proxyAdminPort proxyBootstrapTemplatePath proxyHeaders proxyMetadata proxyStatsMatcher readinessProbe runtimeValues sds
	serviceCluster statNameLength statsCompression statsdUdpAddress statusPort terminationDrainDuration tracing
	tracingServiceName zipkinAddress`)

// fieldOf is the JSON name of a field of ProxyConfig by that name or by the one in the .proto file: Istio accepts both
// in all YAML. It is "" for another key.
func fieldOf(key string) string {
	words := strings.Split(key, "_")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	if name := strings.Join(words, ""); slices.Contains(proxyFields, name) {
		return name
	}
	return ""
}

// kind is the type of a setting: how it is read, and printed.
type kind interface {
	// read parses the setting's text, or its default's, into its field of Settings.
	read(*resolver, *Settings, *Setting)
	row(*Settings, *Setting) row
	accepts() string // the valid values
}

// value is a setting of type T in a field of Settings.
type value[T any] struct {
	in     func(*Settings) *Value[T]
	accept string
	parse  func(string) (T, bool)
}

func (v value[T]) accepts() string { return v.accept }

func (v value[T]) read(r *resolver, s *Settings, one *Setting) {
	to := v.in(s)
	to.Value, _ = v.parse(one.Default)
	e, ok := r.find(one)
	if !ok {
		return
	}
	to.Source, to.Path = e.source, e.path
	if value, ok := v.parse(e.text); ok {
		to.Value = value
	} else {
		r.fail(&FieldError{Field: e.path, Value: e.shown, Source: e.source, Accepts: v.accept})
	}
}

func duration(in func(*Settings) *Value[time.Duration]) kind {
	return value[time.Duration]{in, timers.DurationFormat, timers.ParseDuration}
}

// wholeSeconds is for Istio's ValidateDrainDuration: it becomes --drain-time-s.
func wholeSeconds(in func(*Settings) *Value[time.Duration]) kind {
	return value[time.Duration]{in, "a duration of whole seconds, at least 1s, such as 45s",
		func(text string) (time.Duration, bool) {
			d, err := time.ParseDuration(text)
			return d, err == nil && d >= time.Second && d%time.Second == 0
		}}
}

func gracePeriod(in func(*Settings) *Value[time.Duration]) kind {
	return graceKind{value[time.Duration]{in, timers.GracePeriodFormat, timers.ParseGracePeriod}}
}

// graceKind is a number of seconds as a variable, and a duration as a flag.
type graceKind struct{ value[time.Duration] }

func (g graceKind) read(r *resolver, s *Settings, one *Setting) {
	if _, isFlag := r.flags[one.Name]; !isFlag {
		g.value.read(r, s, one)
		return
	}
	flag := *one
	flag.Default += "s"
	wholeSeconds(g.in).read(r, s, &flag)
}

// boolean is parsed by strconv.ParseBool, as in Istio's env package. (Istio logs an invalid one and uses the default;
// here it is an error.)
func boolean(in func(*Settings) *Value[bool]) kind {
	return value[bool]{in, "true or false (or 1, t, T, TRUE, True, 0, f, F, FALSE, False)",
		func(text string) (bool, bool) {
			value, err := strconv.ParseBool(text)
			return value, err == nil
		}}
}

func oneOf(in func(*Settings) *Value[string], accepts string, values ...string) kind {
	return value[string]{in, accepts, func(text string) (string, bool) { return text, slices.Contains(values, text) }}
}

// endless is when a drain ends long-lived connections of one sort.
func endless(in func(*Settings) *Value[string]) kind {
	return oneOf(in, `"wait" (until the last call) or "close" (when the draining phase ends)`, "wait", "close")
}

func appEnd(in func(*Settings) *Value[drain.AppEnd]) kind {
	return value[drain.AppEnd]{in, `"finishes", "exits" or "auto"`, func(text string) (drain.AppEnd, bool) {
		app, err := drain.ParseAppEnd(text)
		return app, err == nil
	}}
}

func closeCode(in func(*Settings) *Value[int]) kind {
	return value[int]{in, "1001 (going away) or 1012 (service restart)", func(text string) (int, bool) {
		return map[string]int{"1001": 1001, "1012": 1012}[text], text == "1001" || text == "1012"
	}}
}

func port(in func(*Settings) *Value[int]) kind {
	return value[int]{in, "a port number, 1 to 65535", func(text string) (int, bool) {
		n, err := strconv.ParseUint(text, 10, 16)
		return int(n), err == nil && n > 0
	}}
}

// threads may be unset.
func threads(in func(*Settings) *Value[*int]) kind {
	return value[*int]{in, "a whole number of worker threads, 0 (one for each core) or more",
		func(text string) (*int, bool) {
			if text == "" {
				return nil, true
			}
			n, err := strconv.ParseInt(text, 10, 32)
			count := int(n)
			return &count, err == nil && n >= 0
		}}
}

// optional is a boolean that may be unset.
func optional(in func(*Settings) *Value[*bool]) kind {
	return value[*bool]{in, "true, false or null", func(text string) (*bool, bool) {
		if text == "" {
			return nil, true
		}
		b, err := strconv.ParseBool(text)
		return &b, err == nil
	}}
}

func mediaTypes(in func(*Settings) *Value[[]string]) kind {
	const accepts = "media types, comma-separated, such as application/x-ndjson"
	return value[[]string]{in, accepts, func(text string) ([]string, bool) {
		types := []string{}
		if text == "" {
			return types, true
		}
		for _, t := range strings.Split(strings.ToLower(text), ",") {
			t = strings.TrimSpace(t)
			if kind, name, ok := strings.Cut(t, "/"); !ok || kind == "" || name == "" || strings.ContainsAny(name, "/; ") {
				return nil, false
			}
			types = append(types, t)
		}
		return types, true
	}}
}

// list is a list of strings, as JSON.
func list(in func(*Settings) *Value[[]string]) kind {
	return value[[]string]{in, "a list of strings", func(text string) (list []string, ok bool) {
		return list, text == "" || json.Unmarshal([]byte(text), &list) == nil
	}}
}

func expressions(in func(*Settings) *Value[[]string]) kind {
	return value[[]string]{in, "a list of regular expressions of RE2's syntax", func(s string) (list []string, ok bool) {
		ok = s == "" || json.Unmarshal([]byte(s), &list) == nil
		return list, ok && !slices.ContainsFunc(list, func(expression string) bool {
			_, err := regexp.Compile(expression)
			return err != nil
		})
	}}
}

// join appends to a path without sharing its memory.
func join(path []string, keys ...string) []string { return append(slices.Clip(path), keys...) }

// dotted writes a path in the form that users know. Names that would disturb a terminal or a log are quoted.
func dotted(path []string) string {
	var names []string
	for _, key := range path {
		key = brief(key)
		if quoted := strconv.Quote(key); quoted != `"`+key+`"` {
			key = quoted
		}
		names = append(names, key)
	}
	return strings.Join(names, ".")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
