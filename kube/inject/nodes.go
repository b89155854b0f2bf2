package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// dereference replaces aliases by copies of their values, and merges keys (<<): a change at one position must not change
// others. The document has been read before, without an alias of itself.
func dereference(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		value := clone(n.Alias)
		keepComments(value, n)
		*n = *value
	}
	n.Anchor = ""
	for _, child := range n.Content {
		if n.Style&yaml.FlowStyle != 0 && child.Tag == "!!null" && child.Value == "" {
			child.Value = "null" // {a, b}: the writer would write a string
		}
		dereference(child)
	}
	if n.Kind == yaml.MappingNode {
		merge(n)
	}
}

func clone(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = clone(child)
	}
	return &c
}

// merge resolves the "<<" of a mapping whose values have been dereferenced.
func merge(n *yaml.Node) {
	from := index(n, "<<")
	if from < 0 {
		return
	}
	maps := []*yaml.Node{n.Content[from]}
	if maps[0].Kind == yaml.SequenceNode {
		maps = maps[0].Content
	}
	n.Content = slices.Delete(n.Content, from-1, from+1)
	for _, m := range maps {
		for k := 0; k+1 < len(m.Content); k += 2 {
			if manifest.Child(n, m.Content[k].Value) == nil {
				n.Content = append(n.Content, clone(m.Content[k]), clone(m.Content[k+1]))
			}
		}
	}
	merge(n)
}

var fromPointer = strings.NewReplacer("~1", "/", "~0", "~")

// apply applies one operation of a patch to nodes.
func (o Operation) apply(n *yaml.Node, flow bool) error {
	keys := strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
	for i, key := range keys {
		keys[i] = fromPointer.Replace(key)
	}
	last := len(keys) - 1
	for _, key := range keys[:last] {
		i := index(n, key)
		if i < 0 || n.Content[i].Tag == "!!null" {
			// The Go types have a map that the text lacks, such as a template's metadata.
			if err := put(n, key, &yaml.Node{Kind: yaml.MappingNode}); err != nil {
				return err
			}
			i = index(n, key)
		}
		n = n.Content[i]
	}
	i := index(n, keys[last])
	if o.Op == "remove" {
		switch {
		case i < 0: // the Go types wrote a default that the text does not have
		case n.Kind == yaml.SequenceNode:
			n.Content = slices.Delete(n.Content, i, i+1)
		default:
			n.Content = slices.Delete(n.Content, i-1, i+1)
		}
		return nil
	}
	value := &yaml.Node{}
	if err := value.Encode(o.Value); err != nil {
		return err
	}
	restyle(value, flow)
	if o.Op == "add" && i >= 0 && n.Kind == yaml.SequenceNode {
		n.Content = slices.Insert(n.Content, i, value)
		return nil
	}
	return put(n, keys[last], value)
}

// index is the position among n's nodes of the value of a map's key, or of a list's element; -1 if there is none.
func index(n *yaml.Node, key string) int {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
			return i
		}
		return -1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i + 1
		}
	}
	return -1
}

// put sets a value of a map or an element of a list, or adds it at the end. A map gets metadata first, where people expect
// it.
func put(n *yaml.Node, key string, value *yaml.Node) error {
	i := index(n, key)
	switch pair := []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value}; {
	case i >= 0:
		keepComments(value, n.Content[i])
		n.Content[i] = value
	case n.Kind == yaml.SequenceNode && key == strconv.Itoa(len(n.Content)):
		n.Content = append(n.Content, value)
	case n.Kind != yaml.MappingNode:
		return fmt.Errorf("line %d: there is no map for %s", n.Line, key)
	case key == "metadata":
		n.Content = append(pair, n.Content...)
	default:
		if len(n.Content) == 0 {
			n.Style &^= yaml.FlowStyle // {} would keep all values on one line
		}
		n.Content = append(n.Content, pair...)
	}
	return nil
}

func keepComments(to, from *yaml.Node) {
	to.HeadComment, to.LineComment, to.FootComment = from.HeadComment, from.LineComment, from.FootComment
}

// leading is the usual order of fields in added objects; the others follow by name.
var leading = []string{"name", "image", "imagePullPolicy", "restartPolicy", "command", "args", "ports", "env", "value", "valueFrom"}

// restyle gives added nodes people's order of fields, and the style of their surroundings: block, or flow as in JSON.
func restyle(n *yaml.Node, flow bool) {
	switch {
	case flow && n.Kind != yaml.ScalarNode:
		n.Style = yaml.FlowStyle
	case flow && n.Tag == "!!str":
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		restyle(child, flow)
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	fields := slices.Collect(slices.Chunk(n.Content, 2))
	slices.SortStableFunc(fields, func(a, b []*yaml.Node) int { return rank(a[0].Value) - rank(b[0].Value) })
	n.Content = slices.Concat(fields...)
}

// rank is a field's place in added objects.
func rank(key string) int {
	if i := slices.Index(leading, key); i >= 0 {
		return i
	}
	return len(leading)
}
