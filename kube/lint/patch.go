package lint

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// edit is a change of one line of a text.
type edit struct {
	line   int // from 1
	column int // from 1, in bytes; 0 inserts a line after this one
	length int // bytes to replace
	text   string
}

// Patched is the text of a file with the fixes of its findings, and how many findings they remove. Everything else stays
// as it is, comments and style too. Of several grace periods for a pod the longest counts.
func Patched(file *manifest.File, findings []Found) (text []byte, fixed int) {
	type place struct {
		object *manifest.Object
		path   string
	}
	chosen := map[place]string{}
	var order []place
	for _, f := range findings {
		if f.object == nil || f.object.File != file || f.Fix.Path == "" {
			continue
		}
		at := place{f.object, f.Fix.Path}
		before, isThere := chosen[at]
		if !isThere {
			order = append(order, at)
		}
		if !isThere || toInt(f.Fix.Value) > toInt(before) {
			chosen[at] = f.Fix.Value
		}
		fixed++
	}
	lines := strings.SplitAfter(string(file.Text), "\n")
	var edits []edit
	for _, at := range order {
		one, ok := editOf(at.object, at.path, chosen[at], lines)
		if !ok {
			fixed--
			continue
		}
		edits = append(edits, one)
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(cmp.Compare(b.line, a.line), cmp.Compare(b.column, a.column)) })
	for _, e := range edits {
		line := lines[e.line-1]
		if e.column == 0 {
			if !strings.HasSuffix(line, "\n") {
				line += "\n"
			}
			lines[e.line-1] = line + e.text
			continue
		}
		lines[e.line-1] = line[:e.column-1] + e.text + line[e.column-1+e.length:]
	}
	text = []byte(strings.Join(lines, ""))
	if after := manifest.Parse(file.Name, text); len(after.Problems) > len(file.Problems) || len(after.Objects) != len(file.Objects) {
		return file.Text, 0 // an unusual style of YAML
	}
	return text, fixed
}

func toInt(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// editOf sets a field: its plain value is replaced, or it is added to its parent, which must exist.
func editOf(o *manifest.Object, path, value string, lines []string) (edit, bool) {
	n := o.Node()
	if n == nil || strings.Contains(lines[0], "\r") {
		return edit{}, false
	}
	keys := manifest.Fields(path)
	for i, key := range keys {
		next, _ := manifest.Step(n, key)
		if next != nil {
			n = next
			continue
		}
		if i < len(keys)-1 || n.Kind != yaml.MappingNode || len(n.Content) == 0 {
			return edit{}, false
		}
		return addition(n, o.FirstLine()-1, key+": "+value)
	}
	at := edit{line: o.FirstLine() - 1 + n.Line, column: n.Column, length: len(n.Value), text: value}
	line := lines[at.line-1]
	isPlain := n.Kind == yaml.ScalarNode && n.Style == 0 && at.column-1+at.length <= len(line) && line[at.column-1:at.column-1+at.length] == n.Value
	return at, isPlain
}

// addition adds a field to a map: in flow style at its beginning, else after its first scalar of one line.
func addition(n *yaml.Node, before int, field string) (edit, bool) {
	if n.Style&yaml.FlowStyle != 0 {
		return edit{line: before + n.Line, column: n.Column + 1, text: field + ", "}, true
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind == yaml.ScalarNode && value.Line == key.Line && value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && !strings.Contains(value.Value, "\n") {
			return edit{line: before + key.Line, text: strings.Repeat(" ", key.Column-1) + field + "\n"}, true
		}
	}
	if first := n.Content[0]; first.Line > 1 { // all values are longer: before the first key
		return edit{line: before + first.Line - 1, text: strings.Repeat(" ", first.Column-1) + field + "\n"}, true
	}
	return edit{}, false
}
