package inject

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// drainStats are Envoy's statistics that show which connections are busy. Istio's Envoy has none of them by default.
var drainStats = []string{"downstream_rq_active", "downstream_cx_active", "downstream_rq_total", "downstream_cx_total"}

const (
	annotationProxyConfig   = "proxy.istio.io/config"
	annotationStatsSuffixes = "sidecar.istio.io/statsInclusionSuffixes"
)

// exportStats adds drainStats to the pod's settings, which pilot-agent reads when it starts. The annotation
// statsInclusionSuffixes replaces the list of proxyStatsMatcher if it is set. A proxyStatsMatcher in the pod's annotation
// replaces the mesh's, so it repeats it; before Istio's injector has run, the mesh's is unknown, and a webhook waits for
// its second call.
func (j *injection) exportStats() error {
	if list := j.pod.Annotations[annotationStatsSuffixes]; list != "" {
		j.pod.Annotations[annotationStatsSuffixes] = strings.Join(union(strings.Split(list, ","), drainStats), ",")
		return nil
	}
	if len(union(j.settings.StatsSuffixes.Value, drainStats)) == len(j.settings.StatsSuffixes.Value) {
		return nil
	}
	if proxy := carrier.Find(&j.pod.Spec, carrier.IstioProxy); !j.Offline && (proxy == nil || proxy.Image == autoImage) {
		return nil
	}
	mesh, err := Resolve(j.MeshConfig, nil, proxyConfigOf(j.pod))
	if err != nil {
		j.note("the mesh's proxyStatsMatcher is unknown: %v", err)
	}
	matcher := mesh.Proxy.GetProxyStatsMatcher()
	text, err := mergeStats(j.pod.Annotations[annotationProxyConfig], []statsList{
		{"inclusionPrefixes", matcher.GetInclusionPrefixes()},
		{"inclusionSuffixes", union(matcher.GetInclusionSuffixes(), drainStats)},
		{"inclusionRegexps", matcher.GetInclusionRegexps()},
	})
	switch {
	case err != nil:
		return fmt.Errorf("annotation %s: %w", annotationProxyConfig, err)
	case len(text) > maxProxyConfig:
		return fmt.Errorf("annotation %s with the statistics that the drain needs has %d bytes; the limit is %d", annotationProxyConfig, len(text), maxProxyConfig)
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

// mergeStats adds lists to the proxyStatsMatcher of a ProxyConfig in YAML, and keeps its other content and its comments.
func mergeStats(config string, lists []statsList) (string, error) {
	var document yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(config))
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return "", errors.New("it has a second YAML document: remove it")
	}
	if len(document.Content) == 0 || document.Content[0].Tag == "!!null" {
		document = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode, Tag: "!!map"}}}
	}
	root := document.Content[0]
	matcher, err := field(root, "proxyStatsMatcher", yaml.MappingNode)
	if err != nil {
		return "", err
	}
	for _, l := range lists {
		if len(l.items) == 0 {
			continue
		}
		list, err := field(matcher, l.name, yaml.SequenceNode)
		if err != nil {
			return "", err
		}
		var had []string
		for _, n := range list.Content {
			had = append(had, n.Value)
		}
		for _, item := range union(had, l.items)[len(had):] {
			list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: item})
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&document), encoder.Close()); err != nil {
		return "", err
	}
	return out.String(), nil
}

// field is the value of a key of a mapping, which it adds if there is none. Protobuf accepts both spellings of a name.
func field(n *yaml.Node, name string, kind yaml.Kind) (*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: there is no map for %s", n.Line, name)
	}
	var snake strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			snake.WriteByte('_')
			r += 'a' - 'A'
		}
		snake.WriteRune(r)
	}
	for _, spelling := range []string{name, snake.String()} {
		value := manifest.Child(n, spelling)
		switch {
		case value == nil:
			continue
		case value.Tag == "!!null":
			*value = yaml.Node{Kind: kind}
		case value.Kind != kind:
			return nil, fmt.Errorf("line %d: %s has the wrong type", value.Line, spelling)
		}
		return value, nil
	}
	value := &yaml.Node{Kind: kind}
	return value, put(n, name, value)
}
