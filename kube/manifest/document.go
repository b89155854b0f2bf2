// Package manifest reads the manifests that users give to a command: files, folders, patterns and standard input, with
// any number of YAML documents, JSON and Lists in them, such as the output of kustomize and Helm.
//
// A text that cannot be read is a Problem with its file and line; the rest of the input is read nevertheless. All sizes
// have bounds. Objects know the line of each of their fields.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"
)

// Document is one document of a YAML stream, with the marker before it.
type Document struct {
	Line int // of the stream, from 1
	Text []byte

	root     *yaml.Node // see Node
	isParsed bool
	isOdd    bool // it has what appendJSON leaves to the other parser
}

// Node is the document's first YAML node, nil if it is not readable. It is parsed once, for all items of a List.
func (d *Document) Node() *yaml.Node {
	if !d.isParsed {
		d.isParsed = true
		var whole yaml.Node
		if err := yaml.NewDecoder(bytes.NewReader(d.Text)).Decode(&whole); err == nil && len(whole.Content) > 0 {
			d.root = whole.Content[0]
		}
	}
	return d.root
}

// jsonStream are the values of a text that is a sequence of JSON objects, such as jq writes; nil for other texts.
func jsonStream(text []byte) (all []Document) {
	if begin := bytes.TrimSpace(text); len(begin) == 0 || begin[0] != '{' || json.Valid(text) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	for begin, at := 0, 0; ; begin = at {
		var value json.RawMessage
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) && at > 0 {
			all[len(all)-1].Text = append(all[len(all)-1].Text, text[at:]...)
			return all
		} else if err != nil {
			return nil
		}
		at = int(decoder.InputOffset())
		all = append(all, Document{Line: 1 + bytes.Count(text[:begin], []byte("\n")), Text: text[begin:at:at]})
	}
}

// Documents splits a stream at its markers. "---" at the beginning of a line is always a marker, even in a block
// scalar (YAML 1.2, 9.1.2).
func Documents(text []byte) []Document {
	if all := jsonStream(text); all != nil {
		return all
	}
	var out []Document
	current := Document{Line: 1}
	begin, at, number := 0, 0, 0
	for line := range bytes.Lines(text) {
		number++
		rest, ok := bytes.CutPrefix(line, []byte("---"))
		if ok && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ' || rest[0] == '\t') {
			if at > begin {
				current.Text = text[begin:at:at]
				out = append(out, current)
			}
			current, begin = Document{Line: number}, at
		}
		at += len(line)
	}
	if at > begin {
		current.Text = text[begin:at:at]
		out = append(out, current)
	}
	return out
}

// maxNesting bounds Lists within Lists, each of which is parsed once more.
const maxNesting = 8

// Objects reads the objects of a document: itself, or the items of a List, nested ones too. A document that is not a
// Kubernetes object, such as comments only, has none. An item that is not readable is a problem; the others are there.
func (d *Document) Objects() ([]*Object, []*Problem) {
	text, err := d.asJSON()
	if err != nil {
		message := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		return nil, []*Problem{d.problem(errors.New(strings.TrimPrefix(message, "yaml: ")))}
	}
	return d.unlist(text, "", 0)
}

// asJSON is the document as the API server's parser reads it.
func (d *Document) asJSON() ([]byte, error) {
	if json.Valid(d.Text) {
		return d.Text, nil
	}
	if n := d.Node(); n != nil && !bytes.ContainsAny(d.Text, "!\t\r") && !bytes.Contains(d.Text, []byte(" \n")) {
		// The two parsers differ about tags, and about blank lines in scalars.
		if text, ok := appendJSON(make([]byte, 0, len(d.Text)), n); ok {
			return text, nil
		}
		d.isOdd = true
	}
	return sigs.YAMLToJSON(d.Text)
}

// lineOf is the line of the parser's messages.
var lineOf = regexp.MustCompile(`^line ([0-9]+): `)

// placeholder matches those of Helm and others, of sed and Make scripts, and of Python.
var placeholder = regexp.MustCompile(`\{\{|@[A-Z][A-Z0-9_]*@|\{[A-Z][A-Z0-9_]*\}`)

// objectField matches the two fields without which a document is no Kubernetes object.
var objectField = regexp.MustCompile(`(?m)^[\s{]*"?(?:kind|apiVersion)"?\s*:`)

// problem gives an error of the YAML parser its line in the stream.
func (d *Document) problem(err error) *Problem {
	p := &Problem{Line: d.Line, Err: err, IsTemplate: placeholder.Match(d.Text), IsForeign: !objectField.Match(d.Text)}
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		n, _ := strconv.Atoi(m[1])
		p.Line, p.Err = d.Line-1+n, errors.New(strings.TrimPrefix(err.Error(), m[0]))
	}
	if p.IsTemplate {
		p.Err = errors.New("it is a template: render it first, as by helm template")
	}
	return p
}

func (d *Document) unlist(text []byte, path string, depth int) (all []*Object, problems []*Problem) {
	o, items, err := readObject(text)
	if err == nil && depth > maxNesting {
		err = fmt.Errorf("more than %d Lists within each other", maxNesting)
	}
	if err != nil {
		whole := &Object{Path: path, document: d}
		p := &Problem{Line: whole.Line(""), Err: err}
		if wrong, ok := errors.AsType[*FieldError](err); ok {
			p.Line = whole.Line(wrong.Path)
		}
		return nil, []*Problem{p}
	}
	if o == nil {
		return nil, nil
	}
	o.Path, o.document = path, d
	if o.Kind != "List" || o.APIVersion != "v1" {
		return []*Object{o}, nil
	}
	for i, item := range items {
		inner, wrong := d.unlist(item, path+"/items/"+strconv.Itoa(i), depth+1)
		all, problems = append(all, inner...), append(problems, wrong...)
	}
	return all, problems
}

// appendJSON writes a node as the API server's parser reads it, which knows YAML 1.1: yes is true. It returns false for
// what only that parser decides: aliases, merges, duplicates, and keys that are no texts.
func appendJSON(out []byte, n *yaml.Node) ([]byte, bool) {
	ok := true
	switch n.Kind {
	case yaml.MappingNode:
		seen := make(map[string]bool, len(n.Content)/2)
		out = append(out, '{')
		for i := 0; i+1 < len(n.Content) && ok; i += 2 {
			key, at := n.Content[i], len(out)
			if out, ok = appendJSON(out, key); !ok || out[at] != '"' || seen[key.Value] || key.Tag == "!!merge" {
				return nil, false
			}
			seen[key.Value] = true
			out, ok = appendJSON(append(out, ':'), n.Content[i+1])
			out = append(out, ',')
		}
		return closed(out, '{', '}'), ok
	case yaml.SequenceNode:
		out = append(out, '[')
		for i := 0; i < len(n.Content) && ok; i++ {
			out, ok = appendJSON(out, n.Content[i])
			out = append(out, ',')
		}
		return closed(out, '[', ']'), ok
	case yaml.ScalarNode:
		return appendScalar(out, n)
	}
	return nil, false
}

// closed ends a list, whose elements have a comma each.
func closed(out []byte, begin, end byte) []byte {
	if last := len(out) - 1; last >= 0 && out[last] != begin {
		out = out[:last]
	}
	return append(out, end)
}

// appendScalar writes a scalar; what may be a number, a truth value or a time in YAML 1.1 is that parser's to decide.
func appendScalar(out []byte, n *yaml.Node) ([]byte, bool) {
	text := n.Value
	switch isPlain := n.Style == 0; {
	case isPlain && (text == "true" || text == "false" || isWhole(text)):
		return append(out, text...), true
	case isPlain && !IsText(text):
		js, err := sigs.YAMLToJSON([]byte(text))
		return append(out, js...), err == nil
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }):
		js, err := json.Marshal(text)
		return append(out, js...), err == nil
	}
	return append(append(append(out, '"'), text...), '"'), true
}

// isWhole reports whether a plain scalar is a whole number of few digits, as JSON writes it.
func isWhole(text string) bool {
	return len(text) > 0 && len(text) < 18 && text[0] != '0' && strings.Trim(text, "0123456789") == "" || text == "0"
}

var words = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "<<"}

// IsText reports whether a plain scalar is certainly a text.
func IsText(text string) bool {
	if text == "" {
		return false
	}
	switch first, last := text[0], text[len(text)-1]|0x20; {
	case strings.IndexByte("yYnNtTfFoO~<", first) >= 0:
		return len(text) > len("false") || !slices.Contains(words, strings.ToLower(text))
	case first >= '0' && first <= '9' && last > 'f' && last < 'z': // 100m: no digit, not even a hexadecimal one
		return true
	case first == '-' && len(text) > 1 && (text[1] == '-' || text[1]|0x20 >= 'a' && text[1]|0x20 <= 'z'): // --flag, -f
		return true
	case strings.IndexByte("+-.0123456789", first) >= 0:
		return text == "-" || strings.ContainsAny(text, " \n:") // a time is a text too
	}
	return true
}
