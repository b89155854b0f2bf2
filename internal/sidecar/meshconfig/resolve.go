package meshconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Where Istio's injector mounts the files, relative to the container's working directory ("/").
const (
	DefaultMeshFile        = "./etc/istio/config/mesh"
	DefaultAnnotationsFile = "./etc/istio/pod/annotations"
)

// annotationConfig is the pod annotation with a ProxyConfig.
const annotationConfig = "proxy.istio.io/config"

// statsAnnotations are the pod annotations that replace lists of proxyStatsMatcher, as in Istio's bootstrap, by the list.
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
		r.readAnnotations(in.AnnotationsFile, text)
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
	s.ScrapeTarget = r.scrapeTarget(s.StatusPort.Value)
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
	read := append(slices.Collect(maps.Values(statsAnnotations)), annotationConfig)
	for _, key := range sortedKeys(annotations) {
		if slices.Contains(read, key) || !strings.Contains(strings.ToLower(key), "istio.io/") {
			continue
		}
		if meant, ok := Nearest(key, read); ok {
			r.warn(Source{Origin: Annotation, Name: key}, key,
				"no annotation of this name, has no effect: did you mean %s?", meant)
		}
	}
	if config, ok := annotations[annotationConfig]; ok {
		r.layers = append(r.layers, r.parseLayer(Source{Origin: Annotation, Name: annotationConfig}, config))
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

// merge puts the layers on each other: a field of a higher one replaces that of a lower one, and proxyMetadata is merged
// key by key.
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
