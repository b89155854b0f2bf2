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
	text, err := d.Text, error(nil)
	if !json.Valid(text) {
		text, err = sigs.YAMLToJSON(text) // as the API server reads it
	}
	if err != nil {
		message := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		return nil, []*Problem{d.problem(errors.New(strings.TrimPrefix(message, "yaml: ")))}
	}
	return d.unlist(text, "", 0)
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
	key := "/items/"
	if o.isTemplate() {
		key = "/objects/"
	} else if !strings.HasSuffix(o.Kind, "List") { // kubectl takes DeploymentList and others too
		return []*Object{o}, nil
	}
	for i, item := range items {
		inner, wrong := d.unlist(item, path+key+strconv.Itoa(i), depth+1)
		all, problems = append(all, inner...), append(problems, wrong...)
	}
	if len(all)+len(problems) == 0 { // its items have no kind
		all = []*Object{o}
	}
	return all, problems
}
