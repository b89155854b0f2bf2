package inject

import (
	"bytes"
	"cmp"
	"math"

	"go.yaml.in/yaml/v3"
)

// collection writes a mapping or list with a change in it, which begins after one offset and ends before another. It
// returns false, and writes nothing, if it is not in block style, or has to begin again within a line.
func (e *editing) collection(n *yaml.Node, from, end int) bool {
	content, indent, width := e.current[n], n.Column-1, 1
	if n.Kind == yaml.MappingNode {
		width = 2
	}
	if n.Style&yaml.FlowStyle != 0 || len(n.Content) == 0 || len(content) == 0 {
		return false
	}
	starts := make([]int, 0, len(n.Content)/width+1)
	for i := 0; i < len(n.Content); i += width {
		start, ok := e.start(n, n.Content[i])
		if !ok {
			return false
		}
		starts = append(starts, start)
	}
	if begin := starts[0]; e.origin(content[0]) != n.Content[0] &&
		len(bytes.TrimLeft(e.text[e.lineStart(begin):begin], " ")) > 0 {
		return false
	}
	starts = append(starts, end)
	var before *yaml.Node
	j := 0
	for i, start := range starts {
		threshold := indent
		if i*width < len(n.Content) {
			threshold++ // a comment in front of an entry belongs to it
		}
		for ; j < len(content) && e.origin(content[j]) == nil; j += width {
			e.copyTo(e.trim(from, start, threshold, before))
			if len(e.out) > 0 && e.out[len(e.out)-1] != '\n' {
				e.out = append(e.out, '\n')
			}
			e.out = append(e.out, spaces(indent)...)
			e.entry(content[j:j+width], indent)
		}
		if i*width == len(n.Content) {
			break
		}
		before, from = n.Content[i*width+width-1], start
		if j < len(content) && e.origin(content[j]) == n.Content[i*width] {
			e.change(content[j:j+width], start, starts[i+1], indent)
			j += width
		} else {
			e.copyTo(e.lineStart(start))
			e.at = e.end(start, starts[i+1], indent, before)
		}
	}
	return true
}

// change writes an entry whose value is another one now, or has a change in it.
func (e *editing) change(entry []*yaml.Node, start, end, indent int) {
	value := entry[len(entry)-1]
	_, isNew := e.added[value]
	if _, isChanged := e.current[value]; !isNew && (!isChanged || e.collection(value, start, end)) {
		return
	}
	e.copyTo(start)
	e.at = e.end(start, end, indent, e.origin(value))
	e.entry(entry, indent)
}

// entry writes an entry at an indentation, from where its first line has it.
func (e *editing) entry(entry []*yaml.Node, indent int) {
	all := yaml.Node{Kind: yaml.SequenceNode}
	if len(entry) > 1 {
		all.Kind = yaml.MappingNode
	}
	for _, n := range entry {
		part := *e.whole(n)
		part.HeadComment, part.FootComment = "", "" // which stay in the text
		all.Content = append(all.Content, &part)
	}
	e.encode(&all, indent)
}

// encode writes a node at an indentation, from where its first line has it.
func (e *editing) encode(n *yaml.Node, indent int) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	e.err = cmp.Or(e.err, encoder.Encode(n), encoder.Close())
	out := text.Bytes()
	if e.hasReturns {
		out = bytes.ReplaceAll(out, []byte("\n"), []byte("\r\n"))
	}
	begin := len(e.out)
	for line := range bytes.Lines(out) {
		if len(e.out) > begin && len(bytes.TrimSpace(line)) > 0 {
			e.out = append(e.out, spaces(indent)...)
		}
		e.out = append(e.out, line...)
	}
}

func (e *editing) offset(n *yaml.Node) int { return e.lines[n.Line-1] + n.Column - 1 }

// start is where an entry of a mapping or list begins, with its key or its dash.
func (e *editing) start(n, entry *yaml.Node) (int, bool) {
	at := e.offset(entry)
	if at >= len(e.text) {
		return 0, false
	}
	if n.Kind == yaml.MappingNode {
		isKey := entry.Style != 0 || bytes.HasPrefix(e.text[at:], []byte(entry.Value))
		return at, isKey && entry.Kind == yaml.ScalarNode && entry.Column == n.Column
	}
	for line := entry.Line - 1; line >= n.Line-1; line-- {
		at = e.lines[line] + n.Column - 1
		if at < len(e.text) && e.text[at] == '-' && len(bytes.Trim(e.text[e.lines[line]:at], " -")) == 0 {
			return at, true
		}
	}
	return 0, false
}

func (e *editing) copyTo(at int) {
	e.out = append(e.out, e.text[e.at:at]...)
	e.at = at
}

func (e *editing) lineStart(at int) int { return bytes.LastIndexByte(e.text[:at], '\n') + 1 }

// end is where an entry ends, of which comments are no part; what looks like one may be a line of a text.
func (e *editing) end(start, next, indent int, value *yaml.Node) int {
	if leaf(value).Style == 0 {
		return e.trim(start, next, math.MaxInt, value)
	}
	return e.trim(start, next, indent+1, value)
}

// leaf is the last scalar of a value, or what is empty.
func leaf(n *yaml.Node) *yaml.Node {
	for len(n.Content) > 0 {
		n = n.Content[len(n.Content)-1]
	}
	return n
}

// trim is where the text between two offsets ends without the blank lines at its end and the comments that are indented
// less than the threshold. Blank lines after a block scalar belong to it.
func (e *editing) trim(from, to, threshold int, last *yaml.Node) int {
	keepsBlank := last != nil && leaf(last).Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if to < len(e.text) {
		to = e.lineStart(to)
	}
	for to > from {
		begin := e.lineStart(to - 1)
		line := bytes.TrimLeft(e.text[begin:to], " ")
		isBlank := len(bytes.TrimSpace(line)) == 0
		if begin <= from || isBlank && keepsBlank || !isBlank && (line[0] != '#' || to-begin-len(line) >= threshold) {
			break
		}
		to = begin
	}
	return to
}

func spaces(n int) []byte { return bytes.Repeat([]byte{' '}, n) }
