package meshconfig

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// Where Istio's injector mounts the files, relative to the container's working directory ("/").
const (
	DefaultMeshFile        = "./etc/istio/config/mesh"
	DefaultAnnotationsFile = "./etc/istio/pod/annotations"
)

// The pod annotations that are read.
const (
	annotationConfig            = "proxy.istio.io/config"
	annotationInclusionPrefixes = "sidecar.istio.io/statsInclusionPrefixes"
	annotationInclusionSuffixes = "sidecar.istio.io/statsInclusionSuffixes"
	annotationInclusionRegexps  = "sidecar.istio.io/statsInclusionRegexps"
)

var annotationsRead = []string{annotationConfig, annotationInclusionPrefixes, annotationInclusionSuffixes,
	annotationInclusionRegexps}

// Input is everything that settings are made of.
type Input struct {
	// MeshFile is the file of the MeshConfig, AnnotationsFile the downward API's; empty means none. A missing file is
	// ignored, with a warning unless it is DefaultMeshFile or DefaultAnnotationsFile. More than 2 MiB is an error.
	MeshFile        string
	AnnotationsFile string

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
	env    map[string]string
	flags  map[string]Flag
	layers []*layer

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
		r.readAnnotations(in.AnnotationsFile, text)
	}
	r.layers = append(r.layers, r.flagLayer())
	for _, name := range sortedKeys(r.env) {
		r.adviseVariable(name, Source{Origin: Environment, Name: name}, name)
	}
	s := r.settings()
	s.ScrapeTarget, s.Annotations = r.scrapeTarget(s.StatusPort.Value), r.annotations
	r.adviseCombination(s)
	s.Warnings = r.all()
	return s, r.err()
}

func (r *resolver) readAnnotations(file, text string) {
	annotations, err := parseAnnotations(text)
	if err != nil {
		r.fail(fmt.Errorf("annotations file %s: %w", file, err))
		return
	}
	r.annotations = annotations
	for _, key := range sortedKeys(annotations) {
		if slices.Contains(annotationsRead, key) || !strings.Contains(strings.ToLower(key), "istio.io/") {
			continue
		}
		if meant, ok := Nearest(key, annotationsRead); ok {
			r.warn(Source{Origin: Annotation, Name: key}, key,
				"no annotation of this name, has no effect: did you mean %s?", meant)
		}
	}
	if config, ok := annotations[annotationConfig]; ok {
		r.layers = append(r.layers, r.parseLayer(Source{Origin: Annotation, Name: annotationConfig}, config))
	}
}

// variable finds the value in force of a variable: a flag overrides the container's own environment, which overrides
// proxyMetadata, of which the highest layer wins.
func (r *resolver) variable(name string) (entry, bool) {
	if f, ok := r.flags[name]; ok {
		return entry{text: f.Text, source: Source{Origin: FlagGiven, Name: f.Name}, path: f.Name}, true
	}
	configured, ok := r.metadata()[name]
	if text := r.env[name]; text != "" {
		own := entry{text: text, source: Source{Origin: Environment, Name: name}, path: name}
		if ok && configured.text != text {
			r.warn(configured.source, configured.path, "%q is not used: the container's own environment sets %q, which takes precedence",
				brief(configured.text), brief(text))
		}
		return own, true
	}
	return configured, ok && configured.text != ""
}

// flagLayer holds the ProxyConfig fields that flags override.
func (r *resolver) flagLayer() *layer {
	l := &layer{source: Source{Origin: FlagGiven}, fields: map[string]field{}, metadata: map[string]entry{}}
	for _, name := range sortedKeys(r.flags) {
		if isVariable(name) {
			continue
		}
		f := r.flags[name]
		own := &layer{source: Source{Origin: FlagGiven, Name: f.Name}, fields: l.fields}
		r.putField(own, name, f.Text, []string{f.Name})
		if put, ok := l.fields[name]; ok {
			put.path = f.Name
			l.fields[name] = put
		}
	}
	return l
}

// metadata is proxyMetadata merged key by key.
func (r *resolver) metadata() map[string]entry {
	merged := map[string]entry{}
	for _, l := range r.layers {
		maps.Copy(merged, l.metadata)
	}
	return merged
}

// field finds the highest layer that sets a field.
func (r *resolver) field(name string) (field, bool) {
	for _, l := range slices.Backward(r.layers) {
		if f, ok := l.fields[name]; ok {
			return f, true
		}
	}
	return field{}, false
}

// readField takes a field's value from its layer and checks it.
func readField[T any](r *resolver, name string, fallback T, get func(*mesh.ProxyConfig) (T, bool)) Value[T] {
	f, ok := r.field(name)
	if !ok {
		return Value[T]{Value: fallback}
	}
	value, ok := get(f.config)
	if !ok {
		r.fail(&FieldError{Field: f.path, Value: fmt.Sprint(value), Source: f.source, Accepts: accepted[name]})
		value = fallback
	}
	return Value[T]{Value: value, Source: f.source, Path: f.path}
}

// settings reads each setting from the highest layer that sets it.
func (r *resolver) settings() *Settings {
	s := &Settings{}
	s.TerminationDrain = readField(r, fieldTerminationDrain, drain.DefaultTerminationDrain,
		func(pc *mesh.ProxyConfig) (time.Duration, bool) {
			return notNegative(pc.GetTerminationDrainDuration())
		})
	s.DrainDuration = readField(r, fieldDrain, DefaultDrainDuration, func(pc *mesh.ProxyConfig) (time.Duration, bool) {
		d := pc.GetDrainDuration().AsDuration()
		return d, d >= time.Second && d%time.Second == 0 // as Istio's ValidateDrainDuration: it becomes --drain-time-s
	})
	s.ParentShutdown = readField(r, fieldParentShutdown, DefaultParentShutdown,
		func(pc *mesh.ProxyConfig) (time.Duration, bool) {
			return notNegative(pc.GetDrainDuration())
		})
	s.AdminPort = readField(r, fieldAdminPort, istio.AdminPort,
		func(pc *mesh.ProxyConfig) (int, bool) { return port(pc.GetProxyAdminPort()) })
	s.StatusPort = readField(r, fieldStatusPort, istio.StatusPort,
		func(pc *mesh.ProxyConfig) (int, bool) { return port(pc.GetStatusPort()) })
	s.Concurrency = readField(r, fieldConcurrency, nil, func(pc *mesh.ProxyConfig) (*int, bool) {
		if pc.Concurrency == nil {
			return nil, true
		}
		n := int(pc.Concurrency.GetValue())
		return &n, n >= 0
	})
	s.HoldApplication = readField(r, fieldHold, nil, func(pc *mesh.ProxyConfig) (*bool, bool) {
		if pc.HoldApplicationUntilProxyStarts == nil {
			return nil, true
		}
		b := pc.HoldApplicationUntilProxyStarts.GetValue()
		return &b, true
	})
	s.StatsPrefixes = r.statsNames("inclusionPrefixes", annotationInclusionPrefixes,
		(*mesh.ProxyConfig_ProxyStatsMatcher).GetInclusionPrefixes)
	s.StatsSuffixes = r.statsNames("inclusionSuffixes", annotationInclusionSuffixes,
		(*mesh.ProxyConfig_ProxyStatsMatcher).GetInclusionSuffixes)
	s.StatsRegexps = r.statsNames("inclusionRegexps", annotationInclusionRegexps,
		(*mesh.ProxyConfig_ProxyStatsMatcher).GetInclusionRegexps)
	for _, expression := range s.StatsRegexps.Value {
		if _, err := regexp.Compile(expression); err != nil {
			r.fail(&FieldError{Field: s.StatsRegexps.Path, Value: strconv.Quote(brief(expression)),
				Source: s.StatsRegexps.Source, Accepts: "regular expressions of RE2's syntax", Err: err})
		}
	}

	s.Compat = readVariable(r, VariableCompat, "", acceptsCompat, oneOf("", CompatIstio))
	// Istio's default is the fixed wait; lastcall's own is to exit when nothing is busy.
	s.ExitOnZero = readVariable(r, VariableExitOnZero, s.Compat.Value != CompatIstio, acceptsBool, parseBool)
	s.MinimumDrain = readVariable(r, VariableMinimumDrain, drain.DefaultMinimumDrain, acceptsDuration,
		timers.ParseDuration)
	s.GracePeriod = readVariable(r, VariableGracePeriod, drain.DefaultGracePeriod, timers.GracePeriodFormat,
		timers.ParseGracePeriod)
	s.QuietTime = readVariable(r, VariableQuietTime, drain.DefaultQuietTime, acceptsDuration, timers.ParseDuration)
	s.Margin = readVariable(r, VariableMargin, drain.DefaultMargin, acceptsDuration, timers.ParseDuration)
	s.IdleGrace = readVariable(r, VariableIdleGrace, drain.DefaultIdleGrace, acceptsDuration, timers.ParseDuration)
	s.RestartWait = readVariable(r, VariableRestartWait, DefaultRestartWait, acceptsDuration, timers.ParseDuration)
	s.App = readVariable(r, VariableApp, drain.AppAuto, acceptsApp, parseApp)
	s.Spread = readVariable(r, variableSpread, 0, acceptsDuration, timers.ParseDuration)
	s.WebSocket = readVariable(r, variableWebSocket, "wait", acceptsEndless, oneOf("wait", "close"))
	s.WebSocketClose = readVariable(r, variableWebSocketClose, 1001, acceptsCloseCode, parseCloseCode)
	s.EventStreams = readVariable(r, variableEventStreams, "wait", acceptsEndless, oneOf("wait", "close"))
	s.EndlessTypes = readVariable(r, variableEndlessTypes, []string{}, acceptsMediaTypes, parseMediaTypes)
	s.Proxy = r.effective()
	return s
}

// statsNames reads one list of proxyStatsMatcher; the annotation of the same
// purpose replaces it, as in Istio's bootstrap.
func (r *resolver) statsNames(part, annotation string,
	get func(*mesh.ProxyConfig_ProxyStatsMatcher) []string) Value[[]string] {
	if list := r.annotations[annotation]; list != "" {
		return Value[[]string]{Value: strings.Split(list, ","), Source: Source{Origin: Annotation, Name: annotation},
			Path: annotation}
	}
	f, _ := r.field(fieldStatsMatcher)
	if names := get(f.config.GetProxyStatsMatcher()); len(names) > 0 {
		return Value[[]string]{Value: names, Source: f.source, Path: f.path + "." + part}
	}
	return Value[[]string]{}
}

// effective is the whole ProxyConfig after the merge, for starting an Envoy: per field, the highest layer's;
// proxyMetadata key by key.
func (r *resolver) effective() *mesh.ProxyConfig {
	pc := defaultProxyConfig()
	to := pc.ProtoReflect()
	for _, l := range r.layers {
		for _, name := range sortedKeys(l.fields) {
			fd := fieldOf(proxyDescriptor(), name)
			if fd == nil {
				continue // parentShutdownDuration
			}
			if from := l.fields[name].config.ProtoReflect(); from.Has(fd) {
				to.Set(fd, from.Get(fd))
			} else {
				to.Clear(fd)
			}
		}
	}
	for name, e := range r.metadata() {
		if pc.ProxyMetadata == nil {
			pc.ProxyMetadata = map[string]string{}
		}
		pc.ProxyMetadata[name] = e.text
	}
	return pc
}

// defaultProxyConfig is Istio's (pkg/config/mesh DefaultProxyConfig of 1.31).
func defaultProxyConfig() *mesh.ProxyConfig {
	return &mesh.ProxyConfig{
		ConfigPath:               "./etc/istio/proxy",
		ClusterName:              &mesh.ProxyConfig_ServiceCluster{ServiceCluster: "istio-proxy"},
		DrainDuration:            durationpb.New(DefaultDrainDuration),
		TerminationDrainDuration: durationpb.New(drain.DefaultTerminationDrain),
		ProxyAdminPort:           istio.AdminPort,
		ControlPlaneAuthPolicy:   mesh.AuthenticationPolicy_MUTUAL_TLS,
		DiscoveryAddress:         "istiod.istio-system.svc:15012",
		StatNameLength:           189,
		StatusPort:               istio.StatusPort,
	}
}

func notNegative(d *durationpb.Duration) (time.Duration, bool) {
	return d.AsDuration(), d.AsDuration() >= 0
}

func port(n int32) (int, bool) { return int(n), n >= 1 && n <= 65535 }
