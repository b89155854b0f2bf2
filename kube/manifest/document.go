package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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

// Documents splits a stream at its markers. "---" at the beginning of a line is always a marker, even in a block
// scalar (YAML 1.2, 9.1.2).
func Documents(text []byte) []Document {
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
