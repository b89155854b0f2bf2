package inject

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// drainStats are Envoy's statistics that show which connections are busy. Istio's Envoy has none of them by default.
var drainStats = []string{"downstream_rq_active", "downstream_cx_active", "downstream_rq_total", "downstream_cx_total"}

const (
	annotationProxyConfig   = meshconfig.AnnotationConfig
	annotationStatsSuffixes = "sidecar.istio.io/statsInclusionSuffixes"
)

// exportStats adds drainStats to the pod's settings, which pilot-agent reads when it starts. The annotation
// statsInclusionSuffixes replaces the list of proxyStatsMatcher if it is set. A proxyStatsMatcher in the pod's
// annotation replaces the mesh's, so it repeats it; before Istio's injector has run, the mesh's is unknown, and a
// webhook waits for its second call.
func (j *injection) exportStats() error {
	if list := j.pod.Annotations[annotationStatsSuffixes]; list != "" {
		j.pod.Annotations[annotationStatsSuffixes] = strings.Join(union(strings.Split(list, ","), drainStats), ",")
		return nil
	}
	if len(union(j.settings.StatsSuffixes.Value, drainStats)) == len(j.settings.StatsSuffixes.Value) {
		return nil
	}
	if proxy := pod.Find(&j.pod.Spec, pod.IstioProxy); !j.Offline && (proxy == nil || proxy.Image == autoImage) {
		return nil
	}
	mesh, err := Resolve(j.MeshConfig, nil, proxyConfigOf(j.pod))
	if err != nil {
		j.note("the mesh's proxyStatsMatcher is unknown: %v", err)
	}
	text, err := mergeStats(j.pod.Annotations[annotationProxyConfig], []statsList{
		{"inclusionPrefixes", mesh.StatsPrefixes.Value},
		{"inclusionSuffixes", union(mesh.StatsSuffixes.Value, drainStats)},
		{"inclusionRegexps", mesh.StatsRegexps.Value},
	})
	switch {
	case err != nil:
		return fmt.Errorf("annotation %s: %w", annotationProxyConfig, err)
	case len(text) > maxProxyConfig:
		return fmt.Errorf("annotation %s with the statistics that the drain needs has %d bytes; the limit is %d",
			annotationProxyConfig, len(text), maxProxyConfig)
	}
	j.pod.Annotations[annotationProxyConfig] = text
	return nil
}

// statsList is a list of proxyStatsMatcher.
type statsList struct {
	name  string // as in JSON; protobuf's name is valid too
	items []string
}

// union is a with the items of b that it lacks.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, item := range b {
		if !slices.ContainsFunc(out, func(had string) bool { return strings.TrimSpace(had) == item }) {
			out = append(out, item)
		}
	}
	return out
}

// mergeStats adds lists to the proxyStatsMatcher of a ProxyConfig in YAML, and keeps its other content.
func mergeStats(config string, lists []statsList) (string, error) {
	if len(manifest.Documents([]byte(config))) > 1 {
		return "", errors.New("it has a second YAML document: remove it")
	}
	root := map[string]any{}
	if err := yaml.Unmarshal([]byte(config), &root); err != nil {
		return "", err
	}
	if root == nil {
		root = map[string]any{}
	}
	name := spelling(root, "proxyStatsMatcher")
	matcher, ok := root[name].(map[string]any)
	if !ok && root[name] != nil {
		return "", fmt.Errorf("%s is not a map", name)
	}
	if matcher == nil {
		matcher = map[string]any{}
	}
	for _, l := range lists {
		if len(l.items) == 0 {
			continue
		}
		name := spelling(matcher, l.name)
		list, ok := matcher[name].([]any)
		if !ok && matcher[name] != nil {
			return "", fmt.Errorf("%s is not a list", name)
		}
		var had []string
		for _, item := range list {
			had = append(had, fmt.Sprint(item))
		}
		matcher[name] = union(had, l.items)
	}
	root[name] = matcher
	out, err := yaml.Marshal(root)
	return string(out), err
}

var capital = regexp.MustCompile(`[A-Z]`)

// spelling is the spelling of a field's name in a map: protobuf accepts its own, with underscores, too.
func spelling(fields map[string]any, name string) string {
	snake := capital.ReplaceAllStringFunc(name, func(c string) string { return "_" + strings.ToLower(c) })
	if _, ok := fields[snake]; ok {
		return snake
	}
	return name
}
