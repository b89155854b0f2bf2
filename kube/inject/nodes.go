package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// maxDepth is the maximum depth of a document with its aliases resolved: an alias of itself has no end.
const maxDepth = 1000

// dereference replaces aliases by copies of their values, and merges keys (<<): a change at one position must not change
// others.
func dereference(n *yaml.Node, depth int) error {
	if depth > maxDepth {
		return errors.New("nested too deep, or an alias of itself")
	}
	if n.Kind == yaml.AliasNode {
		head, line, foot := n.HeadComment, n.LineComment, n.FootComment
		*n = *clone(n.Alias)
		n.HeadComment, n.LineComment, n.FootComment = head, line, foot
	}
	n.Anchor = ""
	for _, child := range n.Content {
		if n.Style&yaml.FlowStyle != 0 && child.Tag == "!!null" && child.Value == "" {
			child.Value = "null" // {a, b}: the writer would write a string
		}
		if err := dereference(child, depth+1); err != nil {
			return err
		}
	}
	if n.Kind == yaml.MappingNode {
		return merge(n)
	}
	return nil
}

func clone(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = clone(child)
	}
	return &c
}

// merge resolves "<<" of a mapping whose values have been dereferenced.
func merge(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" && n.Content[i].Value != "<<" {
			continue
		}
		from := []*yaml.Node{n.Content[i+1]}
		if from[0].Kind == yaml.SequenceNode {
			from = from[0].Content
		}
		n.Content = slices.Delete(n.Content, i, i+2)
		for _, m := range from {
			if m.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: << must have a map as its value", m.Line)
			}
			for k := 0; k+1 < len(m.Content); k += 2 {
				if manifest.Child(n, m.Content[k].Value) == nil {
					n.Content = append(n.Content, clone(m.Content[k]), clone(m.Content[k+1]))
				}
			}
		}
		return merge(n)
	}
	return nil
}

var fromPointer = strings.NewReplacer("~1", "/", "~0", "~")

// applyTo applies one operation of a patch to nodes.
func applyTo(root *yaml.Node, op Operation, flow bool) error {
	keys := strings.Split(strings.TrimPrefix(op.Path, "/"), "/")
	for i := range keys {
		keys[i] = fromPointer.Replace(keys[i])
	}
	n := root
	for _, key := range keys[:len(keys)-1] {
		next := manifest.Child(n, key)
		if n.Kind == yaml.SequenceNode {
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(n.Content) {
				return fmt.Errorf("there is no element %s", key)
			}
			next = n.Content[i]
		}
		if next == nil || next.Tag == "!!null" {
			// The Go types have a map that the text lacks, such as a template's metadata.
			fresh := &yaml.Node{Kind: yaml.MappingNode}
			if err := put(n, key, fresh); err != nil {
				return err
			}
			next = fresh
		}
		n = next
	}
	last := keys[len(keys)-1]
	if op.Op == "remove" {
		return drop(n, last)
	}
	value, err := asNode(op.Value, flow)
	if err != nil {
		return err
	}
	if n.Kind != yaml.SequenceNode {
		return put(n, last, value)
	}
	i, err := strconv.Atoi(last)
	switch {
	case err != nil || i < 0 || i > len(n.Content):
		return fmt.Errorf("there is no position %s", last)
	case op.Op == "add":
		n.Content = slices.Insert(n.Content, i, value)
	case i < len(n.Content):
		keepComments(value, n.Content[i])
		n.Content[i] = value
	default:
		return fmt.Errorf("there is no element %s", last)
	}
	return nil
}

// put sets a value of a mapping. metadata is put first, where people expect it.
func put(n *yaml.Node, key string, value *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: there is no map for %s", n.Line, key)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			keepComments(value, n.Content[i+1])
			n.Content[i+1] = value
			return nil
		}
	}
	if len(n.Content) == 0 {
		n.Style &^= yaml.FlowStyle // {} would keep all values on one line
	}
	pair := []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value}
	if key == "metadata" {
		n.Content = append(pair, n.Content...)
	} else {
		n.Content = append(n.Content, pair...)
	}
	return nil
}

func keepComments(to, from *yaml.Node) {
	to.HeadComment, to.LineComment, to.FootComment = from.HeadComment, from.LineComment, from.FootComment
}

func drop(n *yaml.Node, key string) error {
	if n.Kind == yaml.SequenceNode {
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(n.Content) {
			return fmt.Errorf("there is no element %s", key)
		}
		n.Content = slices.Delete(n.Content, i, i+1)
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = slices.Delete(n.Content, i, i+2)
			return nil
		}
	}
	return nil // the Go types wrote a default that the text does not have
}

// leading is the usual order of fields in added objects; the others follow by name.
var leading = []string{"name", "image", "imagePullPolicy", "restartPolicy", "command", "args", "ports", "env", "value", "valueFrom"}

// asNode is a value of a patch as nodes, in block style unless its surroundings are in flow style.
func asNode(value any, flow bool) (*yaml.Node, error) {
	n := &yaml.Node{}
	if flow {
		n.Style = yaml.FlowStyle
	}
	switch v := value.(type) {
	case map[string]any:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		keys := slices.Sorted(maps.Keys(v))
		slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
		for _, key := range keys {
			child, err := asNode(v[key], flow)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, textNode(key, flow), child)
		}
		return n, nil
	case []any:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		for _, element := range v {
			child, err := asNode(element, flow)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		return n, nil
	case string:
		return textNode(v, flow), nil
	}
	scalar, err := json.Marshal(value) // a number, a bool or null
	if err != nil {
		return nil, err
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: string(scalar)}, nil
}

func textNode(text string, flow bool) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text} // the writer adds quotes where needed
	switch {
	case flow:
		n.Style = yaml.DoubleQuotedStyle
	case strings.Contains(text, "\n"):
		n.Style = yaml.LiteralStyle
	}
	return n
}

// rank is a field's place in added objects.
func rank(key string) int {
	if i := slices.Index(leading, key); i >= 0 {
		return i
	}
	return len(leading)
}

// isJSON reports whether a text is JSON and not only YAML's flow style.
func isJSON(text []byte) bool { return json.Valid(text) }

// writeJSON writes nodes that were read from JSON, in their order.
func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	var plain bytes.Buffer
	if err := writePlain(&plain, n); err != nil {
		return err
	}
	if err := json.Indent(out, plain.Bytes(), "", "  "); err != nil {
		return err
	}
	return out.WriteByte('\n')
}

func writePlain(out *bytes.Buffer, n *yaml.Node) error {
	separate := func(i int) {
		if i > 0 {
			out.WriteByte(',')
		}
	}
	switch n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			separate(i)
			key, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return err
			}
			out.Write(append(key, ':'))
			if err := writePlain(out, n.Content[i+1]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, c := range n.Content {
			separate(i)
			if err := writePlain(out, c); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	default:
		if n.Tag == "!!str" {
			text, err := json.Marshal(n.Value)
			if err != nil {
				return err
			}
			out.Write(text)
			return nil
		}
		out.WriteString(n.Value) // a number, true, false or null as it was written
	}
	return nil
}
