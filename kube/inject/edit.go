package inject

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
)

// editing changes a YAML document where its nodes stand: lines without a change stay byte for byte.
type editing struct {
	text    []byte
	lines   []int                       // where each begins
	current map[*yaml.Node][]*yaml.Node // what has a change in it, with its content by now
	added   map[*yaml.Node]addition     // what the text lacks
	err     error

	hasReturns bool // in front of each line's end

	out []byte
	at  int // of the text, up to where out has it
}

// addition is the value of a new node, and the node that it replaces, if any.
type addition struct {
	value any
	old   *yaml.Node
}

// editNodes applies operations to a YAML document. It returns false if they change what stands for several places, and
// for a document whose lines are not where the parser counts them.
func editNodes(text []byte, root *yaml.Node, operations []Operation) ([]byte, bool, error) {
	whole := text
	if i := bytes.Index(text, []byte("\n...")); i >= 0 && string(bytes.TrimSpace(text[i:])) == "..." {
		text = text[:i+1] // the document's end stays
	}
	has := func(odd string) bool { return bytes.Contains(text, []byte(odd)) }
	returns := bytes.Count(text, []byte("\r"))
	if root == nil || slices.ContainsFunc(otherBreaks, has) ||
		returns != bytes.Count(text, []byte("\r\n")) {
		return nil, false, nil
	}
	e := &editing{text: text, hasReturns: returns > 0, out: make([]byte, 0, len(text)+4096),
		current: map[*yaml.Node][]*yaml.Node{}, added: map[*yaml.Node]addition{}}
	for line := range bytes.Lines(text) {
		e.lines = append(e.lines, e.at)
		e.at += len(line)
	}
	e.at, e.lines[0] = 0, len(text)-len(bytes.TrimPrefix(text, []byte("\ufeff")))
	for _, o := range operations {
		if err := e.apply(root, o); errors.Is(err, errShared) {
			return nil, false, nil
		} else if err != nil {
			return nil, false, err
		}
	}
	if !e.collection(root, 0, len(text)) {
		start := e.offset(root)
		e.copyTo(e.lineStart(start))
		if bytes.HasPrefix(text[e.at:], []byte("---")) {
			e.out = append(e.out, "---\n"...)
		}
		e.at = e.trim(start, len(text), 1, root)
		block := e.whole(root)
		block.HeadComment, block.FootComment = "", "" // which stay in the text
		e.encode(block, 0)
	}
	e.copyTo(len(text))
	return append(e.out, whole[len(text):]...), true, e.err
}

// otherBreaks end lines in YAML 1.1 too, or the document.
var otherBreaks = []string{"\u0085", "\u2028", "\u2029", "\n..."}

// errShared: an anchor, an alias, a merge or a key that stands twice is where the change is.
var errShared = errors.New("it may stand for several places")

func isMerge(n *yaml.Node) bool { return n.Tag == "!!merge" }

func hasAnchors(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAnchors)
}

var outOfPointer = strings.NewReplacer("~1", "/", "~0", "~")

// apply does to a YAML tree what the operation does to JSON.
func (e *editing) apply(n *yaml.Node, o Operation) error {
	var key string
	rest := strings.TrimPrefix(o.Path, "/")
	for isLast := false; !isLast; {
		var more bool
		key, rest, more = strings.Cut(rest, "/")
		if n.Kind == yaml.AliasNode || n.Anchor != "" {
			return errShared
		}
		if isLast = !more; strings.Contains(key, "~") {
			key = outOfPointer.Replace(key)
		}
		if copied, isCopy := e.added[n].value.(map[string]any); isCopy && isLast && o.Op != "remove" {
			copied[key] = o.Value
			return nil
		} else if isCopy {
			return errShared
		}
		content, isChanged := e.current[n]
		if !isChanged {
			content = slices.Clone(n.Content)
			e.current[n] = content
		}
		at := child(n.Kind, content, key)
		isMap, isAdd := n.Kind == yaml.MappingNode, isLast && o.Op == "add"
		switch {
		case at < 0 && !isAdd && slices.ContainsFunc(content, isMerge),
			at >= 0 && isLast && (isMap || !isAdd) && hasAnchors(content[at]),
			at >= 0 && isMap && child(n.Kind, content[at+1:], key) >= 0: // of two the last one counts
			return errShared
		case !isLast && at >= 0:
			if alias := content[at]; alias.Kind == yaml.AliasNode { // the change is only in its copy
				var value map[string]any
				if alias.Decode(&value) != nil {
					return errShared
				}
				content[at] = &yaml.Node{LineComment: alias.LineComment}
				e.added[content[at]] = addition{value, alias}
			}
			n = content[at]
			continue
		case !isLast:
			return fmt.Errorf("no %s at %s", key, o.Path)
		}
		value := &yaml.Node{}
		e.added[value] = addition{value: o.Value}
		switch {
		case at >= 0 && o.Op == "remove" && isMap:
			content = slices.Delete(content, at-1, at+1)
		case at >= 0 && o.Op == "remove":
			content = slices.Delete(content, at, at+1)
		case at >= 0 && (o.Op == "replace" || isMap):
			e.added[value] = addition{o.Value, content[at]}
			value.LineComment = content[at].LineComment
			content[at] = value
		case o.Op == "add" && isMap:
			content = append(content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
		case o.Op == "add" && n.Kind == yaml.SequenceNode:
			index, err := strconv.Atoi(key)
			if err != nil || index > len(content) {
				return fmt.Errorf("no position %s at %s", key, o.Path)
			}
			content = slices.Insert(content, index, value)
		default:
			return fmt.Errorf("no %s at %s", key, o.Path)
		}
		e.current[n] = content
	}
	return nil
}

// child is the position in Content of a key's value, or of a list's element, or -1.
func child(kind yaml.Kind, content []*yaml.Node, key string) int {
	if kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(key); err == nil && i < len(content) {
			return i
		}
		return -1
	}
	for i := 0; kind == yaml.MappingNode && i+1 < len(content); i += 2 {
		if content[i].Value == key {
			return i + 1
		}
	}
	return -1
}

// origin is the node of the text where a node stands, or nil.
func (e *editing) origin(n *yaml.Node) *yaml.Node {
	if n.Line > 0 {
		return n
	}
	return e.added[n].old
}

// whole is a node with all changes in it, in block style where they are.
func (e *editing) whole(n *yaml.Node) *yaml.Node {
	if a, isNew := e.added[n]; isNew {
		read, err := treeOf(a.value)
		e.err = cmp.Or(e.err, err)
		value := nodeOf(read)
		value.LineComment = n.LineComment
		return value
	}
	content, isChanged := e.current[n]
	if !isChanged {
		return n
	}
	out := *n
	out.Style &^= yaml.FlowStyle // of one line, which would become long
	out.Content = nil
	for _, c := range content {
		out.Content = append(out.Content, e.whole(c))
	}
	return &out
}

// treeOf is a value as its JSON is read.
func treeOf(value any) (out any, err error) {
	text, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &out)
	}
	return out, err
}

// truths are texts of YAML 1.2, but truth values of YAML 1.1, which the API server reads.
var truths = []string{"y", "n", "yes", "no", "on", "off"}

// nodeOf is a tree as YAML. Node.Encode would write and parse it, for which it takes most of the time of an injection.
func nodeOf(tree any) *yaml.Node {
	n := &yaml.Node{}
	switch tree := tree.(type) {
	case map[string]any:
		n.Kind = yaml.MappingNode
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			n.Content = append(n.Content, nodeOf(key), nodeOf(tree[key]))
		}
	case []any:
		n.Kind = yaml.SequenceNode
		for _, element := range tree {
			n.Content = append(n.Content, nodeOf(element))
		}
	case string:
		if n.SetString(tree); slices.Contains(truths, strings.ToLower(tree)) {
			n.Style = yaml.DoubleQuotedStyle
		}
	default: // a number, a truth value or null
		text, _ := json.Marshal(tree)
		n.Kind, n.Value = yaml.ScalarNode, string(text)
	}
	return n
}
