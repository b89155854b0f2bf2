package inject

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"
)

// Object is one object of a manifest.
type Object struct {
	JSON     []byte
	Workload *Workload // nil for objects without a pod

	line int // of its document in the text, from 1
	path string
	root *yaml.Node
}

// Objects reads a text of YAML documents (or JSON), and the items of Lists in it, as Manifest does. An
// error names the document.
func Objects(text []byte) ([]Object, error) {
	var all []Object
	for i, d := range splitDocuments(text) {
		where := fmt.Sprintf("document %d (line %d)", i+1, d.line)
		js, err := sigs.YAMLToJSON(d.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")))
		}
		objects, err := unlist(js, "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		root := &yaml.Node{}
		if err := yaml.NewDecoder(bytes.NewReader(d.text)).Decode(root); err != nil || len(root.Content) == 0 {
			root = nil // comments only
		}
		for _, o := range objects {
			w, err := ReadWorkload(o.text)
			if err != nil {
				return nil, fmt.Errorf("%s: %s%w", where, o.where(), err)
			}
			all = append(all, Object{JSON: o.text, Workload: w, line: d.line, path: o.path, root: root})
		}
	}
	return all, nil
}

// Line is the line of a field in the text, or of its nearest parent in the text. The path starts at the object's root, such as spec.containers[web].lifecycle, a list's element by its name, a key with dots in brackets too.
func (o Object) Line(path string) int {
	if o.root == nil {
		return o.line
	}
	n := o.root.Content[0]
	line := n.Line
	step := func(next *yaml.Node, at int) bool {
		if next == nil {
			return false
		}
		for next.Kind == yaml.AliasNode {
			next = next.Alias
		}
		n, line = next, at
		return true
	}
	for key := range strings.SplitSeq(strings.TrimPrefix(o.path, "/"), "/") {
		if i, err := strconv.Atoi(key); err == nil && n.Kind == yaml.SequenceNode && i < len(n.Content) {
			step(n.Content[i], n.Content[i].Line)
		} else {
			step(child(n, key), line)
		}
	}
	for _, key := range fields(path) {
		next, at := child(n, key), 0
		if next != nil {
			at = next.Line
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == key {
					at = n.Content[i].Line
				}
			}
		}
		if n.Kind == yaml.SequenceNode {
			for _, element := range n.Content {
				if name := child(element, "name"); name != nil && name.Value == key {
					next, at = element, element.Line
				}
			}
		}
		if !step(next, at) {
			break
		}
	}
	return o.line - 1 + line
}

// fields splits a path at its dots, but not within brackets.
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
