package inject

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/lastcall-dev/lastcall/kube/manifest"
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
			e.out = append(appendSpaces(e.out, indent), e.fresh(content[j:j+width], indent)...)
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
	if isNew {
		e.out = append(e.out, e.fresh(entry, indent)...)
		return
	}
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

// fresh is the text of an entry with a new value.
func (e *editing) fresh(entry []*yaml.Node, indent int) []byte {
	value := entry[len(entry)-1]
	out, comment := []byte{'-'}, cmp.Or(value.LineComment, entry[0].LineComment)
	if len(entry) > 1 {
		out = append(appendScalar(nil, entry[0].Value, indent, true), ':')
	}
	at := len(out)
	out = append(appendYAML(out, reflect.ValueOf(e.added[value].value), indent, len(entry) == 1), '\n')
	if comment != "" {
		line := at + bytes.IndexByte(out[at:], '\n')
		out = slices.Insert(out, line, []byte(" "+comment)...)
	}
	return e.broken(out)
}

// broken has the document's line breaks.
func (e *editing) broken(out []byte) []byte {
	if e.hasReturns {
		return bytes.ReplaceAll(out, []byte("\n"), []byte("\r\n"))
	}
	return out
}

// encode writes a node at an indentation, from where its first line has it.
func (e *editing) encode(n *yaml.Node, indent int) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	e.err = cmp.Or(e.err, encoder.Encode(n), encoder.Close())
	begin := len(e.out)
	for line := range bytes.Lines(e.broken(text.Bytes())) {
		if len(e.out) > begin && len(bytes.TrimSpace(line)) > 0 {
			e.out = appendSpaces(e.out, indent)
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

// appendYAML writes a value after a key or a dash at an indentation, as its JSON says, in block style and with its keys
// in order.
func appendYAML(out []byte, value reflect.Value, indent int, isElement bool) []byte {
	value = inner(value)
	first, below := isElement, indent+2
	entry := func(key string, v reflect.Value) {
		if first {
			out = append(out, ' ')
		} else {
			out = appendSpaces(append(out, '\n'), below)
		}
		if first = false; key == "" {
			out = append(out, '-')
		} else {
			out = append(appendScalar(out, key, below, true), ':')
		}
		out = appendYAML(out, v, below, key == "")
	}
	begin := len(out)
	switch kind := value.Kind(); {
	case kind == reflect.Struct && fieldsOf(value.Type()) != nil:
		for _, f := range fieldsOf(value.Type()) {
			if v := f.in(value); v.IsValid() {
				entry(f.name, v)
			}
		}
	case kind == reflect.Map:
		for _, key := range sorted(value.MapKeys()) {
			entry(key.String(), value.MapIndex(key))
		}
	case kind == reflect.Slice:
		if !isElement {
			below = indent
		}
		for i := range value.Len() {
			entry("", value.Index(i))
		}
	case kind == reflect.String:
		return appendScalar(append(out, ' '), value.String(), indent, false)
	case kind == reflect.Struct:
		return appendYAML(out, reflect.ValueOf(new(treeing).of(value)), indent, isElement)
	}
	if len(out) > begin {
		return out
	}
	text := []byte("null")
	if value.IsValid() {
		text, _ = json.Marshal(value.Interface()) // a number, a truth value, or empty
	}
	return append(append(out, ' '), text...)
}

func appendSpaces(out []byte, n int) []byte {
	for range n {
		out = append(out, ' ')
	}
	return out
}

// appendScalar writes a text as a scalar that all parsers read as a text; one of several lines as a block, which a key
// cannot be.
func appendScalar(out []byte, text string, indent int, isKey bool) []byte {
	if isWord(text) {
		return append(out, text...)
	}
	isPrintable := !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
	isLine := !strings.Contains(text, "\n")
	switch {
	case isLine && isPrintable && isAmbiguous(text):
		return append(append(append(out, '"'), text...), '"')
	case isLine && isPrintable && isPlain(text):
		return append(out, text...)
	case isLine && isPrintable:
		return append(append(append(out, '\''), strings.ReplaceAll(text, "'", "''")...), '\'')
	case isKey, !isPrintable, strings.TrimSpace(text[:1]) == "", strings.Contains(text, " \n"),
		strings.TrimSpace(text[len(text)-2:]) == "", strings.HasSuffix(text, " "):
		quoted, _ := json.Marshal(text)
		return append(out, quoted...)
	}
	body, hasEnd := strings.CutSuffix(text, "\n")
	if out = append(out, '|'); !hasEnd {
		out = append(out, '-')
	}
	for line := range strings.SplitSeq(body, "\n") {
		if out = append(out, '\n'); line != "" {
			out = append(appendSpaces(out, indent+2), line...)
		}
	}
	return out
}

// isWord reports whether a text is a name, a path or an option, as most are.
func isWord(text string) bool {
	for i := range len(text) {
		if c := text[i]; c|0x20 < 'a' && c != '/' && c != '-' && (c < '0' || c > '9' || i == 0) || c|0x20 > 'z' {
			return false
		}
	}
	return text != "" && text != "-" && !strings.HasPrefix(text, "---") && manifest.IsText(text)
}

// isAmbiguous reports whether a parser of YAML 1.1 or 1.2 reads a plain text as something else: a number, also one to
// the base 60, a truth value, a time or null.
func isAmbiguous(text string) bool {
	return text == "" || text[0] >= 'A' && !manifest.IsText(text) ||
		strings.Contains(text, ":") && strings.Trim(text, "0123456789_:+-") == "" ||
		(&yaml.Node{Kind: yaml.ScalarNode, Value: text}).ShortTag() != "!!str"
}

// isPlain reports whether a text of one line needs no quotes.
func isPlain(text string) bool {
	first, rest := text[:1], text[1:]
	return !strings.ContainsAny(first, "#,[]{}&*!|>'\"%@` ") && !strings.HasPrefix(text, "---") &&
		!strings.HasPrefix(text, "...") && !(strings.Contains("-?:", first) && strings.HasPrefix(rest+" ", " ")) &&
		!strings.Contains(text+" ", ": ") && !strings.Contains(text, " #") && !strings.HasSuffix(text, " ")
}
