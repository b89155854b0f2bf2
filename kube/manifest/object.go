package manifest

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Object is one Kubernetes object of a manifest.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Of the metadata. Name is generateName if there is no name.
	Name        string            `json:"-"`
	Namespace   string            `json:"-"`
	Labels      map[string]string `json:"-"`
	Annotations map[string]string `json:"-"`

	// JSON is the whole object. Path is the object's JSON pointer in the document: empty, or that of a List's item.
	JSON []byte `json:"-"`
	Path string `json:"-"`

	File *File `json:"-"` // the object's origin, as Read names it

	document *Document
}

// Values is the kind of the values of Istio's chart, which are no Kubernetes object.
const Values = "Values"

// readObject reads an object, and the items of a List or of OpenShift's Template; nil if the text is no Kubernetes
// object.
func readObject(text []byte) (*Object, []stdjson.RawMessage, error) {
	o := &Object{JSON: text}
	var whole struct {
		*Object
		Metadata struct {
			Name         string            `json:"name"`
			GenerateName string            `json:"generateName"`
			Namespace    string            `json:"namespace"`
			Labels       map[string]string `json:"labels"`
			Annotations  map[string]string `json:"annotations"`
		} `json:"metadata"`
		Items      []stdjson.RawMessage `json:"items"`
		MeshConfig map[string]any       `json:"meshConfig"`
	}
	whole.Object = o
	if err := unmarshal(text, nil, &whole); err != nil {
		var head struct{ Kind string }
		if stdjson.Unmarshal(text, &head) != nil || head.Kind == "" {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("%s: %w", head.Kind, err)
	}
	m := whole.Metadata
	o.Name, o.Namespace, o.Labels, o.Annotations = cmp.Or(m.Name, m.GenerateName), m.Namespace, m.Labels, m.Annotations
	if o.Kind == "" && whole.MeshConfig != nil {
		o.Kind, o.APIVersion = Values, Values
	}
	if o.Kind == "" || o.APIVersion == "" {
		return nil, nil, nil
	}
	if o.isTemplate() {
		items, err := o.processed()
		return o, items, err
	}
	return o, whole.Items, nil
}

// isTemplate reports whether the object is a Template of OpenShift, whose objects oc process makes.
func (o *Object) isTemplate() bool {
	return o.Is("template.openshift.io", "Template") || o.Is("", "Template")
}

// processed are the objects of a Template with the values of its parameters: ${{NAME}} is one of any type.
func (o *Object) processed() ([]stdjson.RawMessage, error) {
	var t struct {
		Objects    []stdjson.RawMessage `json:"objects"`
		Parameters []struct {
			Name  string `json:"name"`
			Value any    `json:"value"`
		} `json:"parameters"`
	}
	if err := o.Decode(&t); err != nil {
		return nil, err
	}
	var pairs []string
	longest := 0
	for _, p := range t.Parameters {
		value := ""
		if p.Value != nil {
			value = fmt.Sprint(p.Value)
		}
		longest = max(longest, len(value))
		quoted, _ := stdjson.Marshal(value)
		typed := string(quoted)
		if value == "" {
			typed = "null" // the user gives it
		} else if stdjson.Valid([]byte(value)) {
			typed = value
		}
		pairs = append(pairs, `"${{`+p.Name+`}}"`, typed)
		if value != "" {
			pairs = append(pairs, "${"+p.Name+"}", string(quoted[1:len(quoted)-1]))
		}
	}
	if bytes.Count(o.JSON, []byte("${"))*longest > maxFile {
		return nil, fmt.Errorf("its parameters add more than %d MiB", maxFile>>20)
	}
	with := strings.NewReplacer(pairs...)
	for i, text := range t.Objects {
		t.Objects[i] = stdjson.RawMessage(with.Replace(string(text)))
	}
	return t.Objects, nil
}

// Group is the API group, empty for the core group.
func (o *Object) Group() string {
	if group, _, found := strings.Cut(o.APIVersion, "/"); found {
		return group
	}
	return ""
}

// Is reports whether the object is of a kind; versions do not count.
func (o *Object) Is(group, kind string) bool { return o.Kind == kind && o.Group() == group }

// String is the kind and the name, with the namespace if it has one.
func (o *Object) String() string {
	if o.Namespace == "" {
		return strings.TrimSpace(o.Kind + " " + o.Name)
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Decode reads the object. As in the API server, field names are case-sensitive.
func (o *Object) Decode(into any) error { return unmarshal(o.JSON, nil, into) }

// node is the YAML node of the object in its document; an empty one if its parser refuses what the other one takes.
func (o *Object) node() *yaml.Node {
	n := o.document.Node()
	if n == nil {
		return &yaml.Node{Line: 1}
	}
	return below(n, strings.Split(strings.TrimPrefix(o.Path, "/"), "/"))
}

// below is the node at keys below another one, or the last that is there.
func below(n *yaml.Node, keys []string) *yaml.Node {
	for _, key := range keys {
		if next, _ := step(n, key); next != nil {
			n = next
		}
	}
	return n
}

// Line is the line of a field in the text, or of its nearest parent in the text. The path starts at the object's root,
// such as spec.containers[web].lifecycle: a list's element by its name or index, a key with dots in brackets too.
func (o *Object) Line(path string) int {
	n := o.node()
	line := n.Line
	for _, key := range fields(path) {
		next, at := step(n, key)
		if next == nil {
			break
		}
		n, line = next, at
	}
	return o.document.Line - 1 + line
}

// step is the node below n of a key, a list's element by its name or index, and its line within the document; nil if
// there is none.
func step(n *yaml.Node, key string) (*yaml.Node, int) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return resolve(n.Content[i+1]), n.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		for i, element := range n.Content {
			element, line := resolve(element), element.Line
			if name, _ := step(element, "name"); name != nil && name.Value == key || strconv.Itoa(i) == key {
				return element, line
			}
		}
	}
	return nil, 0
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// fields splits the path of a field at its dots, but not within brackets.
func fields(path string) []string {
	var all []string
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			key, after, _ := strings.Cut(rest, "]")
			all, path = append(all, key), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(all, path)
		}
		all = append(all, path[:end])
		path = strings.TrimPrefix(path[end:], ".")
	}
	return all
}
