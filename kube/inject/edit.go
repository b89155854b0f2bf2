package inject

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// editNodes applies operations to a YAML document and keeps its comments, the order of its fields and their styles. It
// returns false for a document with anchors, whose nodes stand for several places.
func editNodes(document []byte, operations []Operation) ([]byte, bool, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil || len(root.Content) != 1 || hasAnchors(&root) {
		return nil, false, nil //nolint:nilerr // another parser has read it
	}
	for _, o := range operations {
		if err := o.apply(root.Content[0]); err != nil {
			return nil, false, err
		}
	}
	var out bytes.Buffer
	if bytes.HasPrefix(document, []byte("---")) {
		out.WriteString("---\n")
	}
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(&root); err != nil {
		return nil, false, err
	}
	return out.Bytes(), true, encoder.Close()
}

func hasAnchors(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAnchors)
}

var outOfPointer = strings.NewReplacer("~1", "/", "~0", "~")

// apply does to a YAML tree what the operation does to JSON.
func (o Operation) apply(n *yaml.Node) error {
	var value yaml.Node
	if err := value.Encode(o.Value); err != nil {
		return err
	}
	keys := strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
	for i, key := range keys {
		n.Style &^= yaml.FlowStyle // of one line, which would become long
		key = outOfPointer.Replace(key)
		at := child(n, key)
		if isLast := i == len(keys)-1; !isLast && at >= 0 {
			n = n.Content[at]
			continue
		} else if !isLast {
			return fmt.Errorf("no %s at %s", key, o.Path)
		}
		switch isMap := n.Kind == yaml.MappingNode; {
		case at >= 0 && o.Op == "remove" && isMap:
			n.Content = slices.Delete(n.Content, at-1, at+1)
		case at >= 0 && o.Op == "remove":
			n.Content = slices.Delete(n.Content, at, at+1)
		case at >= 0 && (o.Op == "replace" || isMap):
			value.LineComment = n.Content[at].LineComment
			n.Content[at] = &value
		case o.Op == "add" && isMap:
			var name yaml.Node
			name.SetString(key)
			n.Content = append(n.Content, &name, &value)
		case o.Op == "add" && n.Kind == yaml.SequenceNode:
			index, err := strconv.Atoi(key)
			if err != nil || index > len(n.Content) {
				return fmt.Errorf("no position %s at %s", key, o.Path)
			}
			n.Content = slices.Insert(n.Content, index, &value)
		default:
			return fmt.Errorf("no %s at %s", key, o.Path)
		}
	}
	return nil
}

// child is the position in Content of a key's value, or of a list's element, or -1.
func child(n *yaml.Node, key string) int {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(key); err == nil && i < len(n.Content) {
			return i
		}
		return -1
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i + 1
		}
	}
	return -1
}
