package meshconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// Where Istio's injector mounts the files, relative to the container's working directory ("/").
const (
	DefaultMeshFile        = "./etc/istio/config/mesh"
	DefaultAnnotationsFile = "./etc/istio/pod/annotations"
)

// AnnotationConfig is the pod annotation with a ProxyConfig.
const AnnotationConfig = "proxy.istio.io/config"

// statsAnnotations are the pod annotations that replace lists of proxyStatsMatcher, as in Istio's bootstrap, by the
// list.
var statsAnnotations = map[string]string{
	"inclusionPrefixes": "sidecar.istio.io/statsInclusionPrefixes",
	"inclusionSuffixes": "sidecar.istio.io/statsInclusionSuffixes",
	"inclusionRegexps":  "sidecar.istio.io/statsInclusionRegexps",
}

// Input is everything that settings are made of.
type Input struct {
	// MeshFile is the file of the MeshConfig, AnnotationsFile the downward API's; empty means none. A missing file is
	// ignored, with a warning unless it is DefaultMeshFile or DefaultAnnotationsFile. More than 2 MiB is an error.
	MeshFile        string
	AnnotationsFile string

	Annotations map[string]string // of the pod, in place of AnnotationsFile

	Env   []string        // the container's environment as os.Environ gives it
	Flags map[string]Flag // those that were set, by the variable or ProxyConfig field that each overrides

	ReadFile func(name string) ([]byte, error) // nil: os.ReadFile, limited to 2 MiB
}

// Flag is a command line flag that was set.
type Flag struct {
	Name string // with its dashes
	Text string
}

// resolver collects the layers, lowest first, and their problems.
type resolver struct {
	findings
	env         map[string]string
	flags       map[string]Flag
	layers      []*layer
	merged      map[string]entry
	annotations map[string]string
}

// Resolve merges everything in Istio's order. The error joins all problems; invalid settings then have their default.
// The settings are never nil, and their Warnings are complete even with an error.
func Resolve(in Input) (*Settings, error) {
	r := &resolver{env: environment(in.Env), flags: in.Flags}
	readFile := in.ReadFile
	if readFile == nil {
		readFile = readBounded
	}
	if text, ok := r.read(readFile, "mesh config file", in.MeshFile, Source{Origin: MeshFile, Name: in.MeshFile},
		DefaultMeshFile); ok {
		r.layers = append(r.layers, r.parseLayer(Source{Origin: MeshFile, Name: in.MeshFile}, text))
	}
	if text := r.env[VariableProxyConfig]; text != "" {
		r.layers = append(r.layers, r.parseLayer(Source{Origin: ProxyConfigVariable, Name: VariableProxyConfig}, text))
	}
	if text, ok := r.read(readFile, "annotations file", in.AnnotationsFile,
		Source{Origin: AnnotationsFile, Name: in.AnnotationsFile}, DefaultAnnotationsFile); ok {
		annotations, err := parseAnnotations(text)
		if err != nil {
			r.fail(fmt.Errorf("annotations file %s: %w", in.AnnotationsFile, err))
		}
		in.Annotations = annotations
	}
	if in.Annotations != nil {
		r.readAnnotations(in.Annotations)
	}
	for _, name := range sortedKeys(r.env) {
		r.adviseVariable(name, Source{Origin: Environment, Name: name}, name)
	}
	s := &Settings{Annotations: r.annotations}
	r.merge(s)
	for i := range settings {
		settings[i].kind.read(r, s, &settings[i])
	}
	if !s.ExitOnZero.IsSet() { // Istio's default is the fixed wait
		s.ExitOnZero.Value = s.Compat.Value != CompatIstio
	}
	if s.Compat.Value == CompatIstio && !s.MinimumDrain.IsSet() {
		s.MinimumDrain.Value = istio.MinimumDrain
	}
	s.ScrapeTarget = r.scrapeTarget(s.StatusPort.Value)
	r.adviseCombination(s)
	s.Warnings = r.all()
	return s, r.err()
}

func (r *resolver) readAnnotations(annotations map[string]string) {
	r.annotations = annotations
	read := append(slices.Collect(maps.Values(statsAnnotations)), AnnotationConfig)
	for _, key := range sortedKeys(annotations) {
		if slices.Contains(read, key) || !strings.Contains(strings.ToLower(key), "istio.io/") {
			continue
		}
		if meant, ok := timers.Nearest(key, read); ok {
			r.warn(Source{Origin: Annotation, Name: key}, key,
				"no annotation of this name, has no effect: did you mean %s?", meant)
		}
	}
	if config, ok := annotations[AnnotationConfig]; ok {
		r.layers = append(r.layers, r.parseLayer(Source{Origin: Annotation, Name: AnnotationConfig}, config))
	}
	stats := &layer{entries: map[string]entry{}}
	for part, name := range statsAnnotations {
		if names := annotations[name]; names != "" {
			text := literal(strings.Split(names, ","))
			stats.entries[fieldStatsMatcher+"."+part] = entry{text, brief(text), Source{Origin: Annotation, Name: name}, name}
		}
	}
	r.layers = append(r.layers, stats)
}

// find is the text in force of a setting: a flag overrides the container's own environment, which only variables have,
// and that overrides the highest layer.
func (r *resolver) find(s *Setting) (entry, bool) {
	if f, ok := r.flags[s.Name]; ok {
		return newEntry(f.Text, Source{Origin: FlagGiven, Name: f.Name}, f.Name), true
	}
	configured, ok := r.merged[s.Name]
	if text := r.env[s.Name]; text != "" && !s.Field {
		if ok && configured.text != text {
			r.warn(configured.source, configured.path, "%q is not used: the container's own environment sets %q, which takes precedence",
				brief(configured.text), brief(text))
		}
		return newEntry(text, Source{Origin: Environment, Name: s.Name}, s.Name), true
	}
	return configured, ok && (s.Field || configured.text != "")
}

// merge puts the layers on each other: a field of a higher one replaces that of a lower one, and proxyMetadata is
// merged key by key.
func (r *resolver) merge(s *Settings) {
	r.merged, s.Proxy, s.Metadata = map[string]entry{}, tree{}, map[string]string{}
	for _, l := range r.layers {
		if _, ok := l.entries[fieldStatsMatcher]; ok {
			for _, part := range statsParts {
				delete(r.merged, fieldStatsMatcher+"."+part)
			}
		}
		maps.Copy(r.merged, l.entries)
		maps.Copy(s.Proxy, l.fields)
	}
	for name, e := range r.merged {
		if !strings.HasPrefix(name, fieldStatsMatcher) && fieldOf(name) == "" {
			s.Metadata[name] = e.text
		}
	}
}

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
	if meant, ok := timers.Nearest(name, variables); ok {
		f.warn(src, path, "unknown setting, has no effect on lastcall: did you mean %s?", meant)
	}
}

func isVariable(name string) bool { return slices.Contains(variables, name) }

// The annotations that make a pod a scrape target. Istio's injector moves them to the variable and points the
// annotations at the merged metrics of the status port.
const (
	annotationScrape = "prometheus.io/scrape"
	annotationPort   = "prometheus.io/port"
	annotationPath   = "prometheus.io/path"
	annotationScheme = "prometheus.io/scheme"
)

// scrapeTarget is the URL of the app's own metrics: the variable overrides the annotations. An invalid value is a
// warning: metrics stop no pod. statusPort is ours: it means the merged metrics, not an app.
func (r *resolver) scrapeTarget(statusPort int) Value[string] {
	source := Source{Origin: Annotation, Name: annotationScrape}
	target := struct{ Scrape, Port, Path, Scheme string }{
		r.annotations[annotationScrape], r.annotations[annotationPort], r.annotations[annotationPath],
		r.annotations[annotationScheme],
	}
	if text := r.env[VariablePrometheus]; text != "" {
		source = Source{Origin: Environment, Name: VariablePrometheus}
		target = struct{ Scrape, Port, Path, Scheme string }{}
		if err := json.Unmarshal([]byte(text), &target); err != nil {
			r.warn(source, VariablePrometheus, `%s is not used: must be {"scrape":"true","port":"8080","path":"/metrics"}: %v`,
				brief(text), err)
			return Value[string]{}
		}
	}
	if yes, _ := strconv.ParseBool(target.Scrape); !yes {
		return Value[string]{}
	}
	target.Port = cmp.Or(target.Port, "80") // Istio's agent's default
	port, err := strconv.ParseUint(target.Port, 10, 16)
	switch {
	case err != nil || port == 0:
		r.warn(source, annotationPort, "%s is not used, the app's metrics are not merged: must be a port, 1 to 65535",
			brief(target.Port))
		return Value[string]{}
	case int(port) == statusPort:
		return Value[string]{}
	case target.Scheme != "" && target.Scheme != "http":
		r.warn(source, annotationScheme, "%s is not used, the app's metrics are not merged: must be http",
			brief(target.Scheme))
		return Value[string]{}
	}
	path := "/" + strings.TrimPrefix(target.Path, "/")
	if target.Path == "" {
		path = "/metrics"
	}
	return Value[string]{Value: "http://" + net.JoinHostPort("127.0.0.1", target.Port) + path, Source: source,
		Path: annotationScrape}
}
