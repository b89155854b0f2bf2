package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// Done is the result for one workload of a manifest.
type Done struct {
	Where    string // which document, and the line in it
	Workload *manifest.Workload
	Result   Result
}

// Manifest injects into the workloads of a text of YAML documents (or JSON). Documents without a workload, or without a
// change, are returned byte for byte; of the others, YAML keeps its order and comments. options returns the options of one
// workload. The labels and annotations of a Namespace in the text apply to its workloads, at any position, unless options set others. An
// error names the document; then the text is nil.
func Manifest(text []byte, options func(*manifest.Workload) Options) ([]byte, []Done, error) {
	return injectAll(text, true, options)
}

func injectAll(text []byte, isOffline bool, options func(*manifest.Workload) Options) ([]byte, []Done, error) {
	var documents []*document
	namespaces := map[string]Namespace{}
	for i, one := range manifest.Documents(text) {
		d := &document{Document: one}
		var err error
		if d.objects, err = d.Objects(); err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		d.addNamespaces(namespaces)
		documents = append(documents, d)
	}
	inNamespace := func(w *manifest.Workload) Options {
		o := options(w)
		o.Offline = isOffline
		if ns := namespaces[o.Namespace.Name]; o.Namespace.Labels == nil {
			o.Namespace.Labels, o.Namespace.Annotations = ns.Labels, ns.Annotations
		}
		return o
	}
	var out bytes.Buffer
	var done []Done
	for i, d := range documents {
		edited, results, err := d.inject(fmt.Sprintf("document %d", i+1), inNamespace)
		if err != nil {
			return nil, nil, fmt.Errorf("document %d (line %d): %w", i+1, d.Line, err)
		}
		done = append(done, results...)
		out.Write(edited)
	}
	return out.Bytes(), done, nil
}

// document is one document of the text, with its objects.
type document struct {
	manifest.Document
	objects []*manifest.Object
}

// addNamespaces adds the document's Namespaces to namespaces.
func (d *document) addNamespaces(namespaces map[string]Namespace) {
	for _, o := range d.objects {
		if o.Kind != "Namespace" || o.APIVersion != "v1" {
			continue
		}
		n := Namespace{Labels: o.Labels, Annotations: o.Annotations}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		namespaces[o.Name] = n
	}
}

func (d *document) inject(where string, options func(*manifest.Workload) Options) ([]byte, []Done, error) {
	var all []Operation
	var done []Done
	for _, o := range d.objects {
		w, err := o.Workload()
		if err != nil {
			return nil, nil, fmt.Errorf("%s%w", item(o), err)
		}
		if w == nil || w.IsKnative() { // Knative makes the pods; it admits few of the fields that injection adds
			continue
		}
		after, result := Pod(w.Pod, options(w))
		operations, err := Diff(w.Pod, after)
		if err != nil {
			return nil, nil, err
		}
		for _, op := range operations {
			op.Path = o.Path + pointer(w.Path) + op.Path
			all = append(all, op)
		}
		done = append(done, Done{Where: fmt.Sprintf("%s (line %d)", where, d.Line), Workload: w, Result: result})
	}
	if len(all) == 0 {
		return d.Text, done, nil
	}
	edited, err := d.edit(all)
	return edited, done, err
}

// item is an error's prefix for an item of a List.
func item(o *manifest.Object) string {
	if o.Path == "" {
		return ""
	}
	return o.Path + ": "
}

func pointer(path []string) string {
	out := ""
	for _, key := range path {
		out = at(out, key)
	}
	return out
}

// edit applies a patch to the document's nodes and writes it in the document's own style.
func (d *document) edit(operations []Operation) ([]byte, error) {
	var root yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(d.Text)).Decode(&root); err != nil {
		return nil, err
	}
	dereference(&root)
	flow := root.Content[0].Style&yaml.FlowStyle != 0
	for _, op := range operations {
		if err := op.apply(root.Content[0], flow); err != nil {
			return nil, fmt.Errorf("%s %s: %w", op.Op, op.Path, err)
		}
	}
	write := d.writeYAML
	if json.Valid(d.Text) { // and not only YAML's flow style
		write = writeJSON
	}
	var out bytes.Buffer
	if err := write(&out, &root); err != nil {
		return nil, err
	}
	if bytes.Contains(d.Text, []byte("\r\n")) {
		return bytes.ReplaceAll(out.Bytes(), []byte("\n"), []byte("\r\n")), nil
	}
	return out.Bytes(), nil
}

// writeJSON sorts the fields, as kubectl does.
func writeJSON(out io.Writer, root *yaml.Node) error {
	var value any
	if err := root.Decode(&value); err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func (d *document) writeYAML(out io.Writer, root *yaml.Node) error {
	if first, _, _ := bytes.Cut(d.Text, []byte("\n")); bytes.HasPrefix(first, []byte("---")) {
		// A comment after the marker belongs to the first node, which is written with it.
		if _, err := io.WriteString(out, "---\n"); err != nil {
			return err
		}
	}
	encoder := yaml.NewEncoder(out)
	indent, compact := style(root)
	encoder.SetIndent(indent)
	if compact {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(root); err != nil {
		return err
	}
	return encoder.Close()
}

// style returns the indentation of a document, and whether its lists start below the first letter of their key.
func style(n *yaml.Node) (indent int, compact bool) {
	indent, compact = 2, true
	foundIndent, foundList := false, false
	var look func(n *yaml.Node)
	look = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle == 0 {
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, value := n.Content[i], n.Content[i+1]
				by := value.Column - key.Column
				switch {
				case value.Style&yaml.FlowStyle != 0 || value.Line == key.Line || value.Column == 0:
				case value.Kind == yaml.MappingNode && !foundIndent && by >= 2 && by <= 8:
					indent, foundIndent = by, true
				case value.Kind == yaml.SequenceNode && !foundList:
					compact, foundList = by == 0, true
				}
			}
		}
		for _, child := range n.Content {
			look(child)
		}
	}
	look(n)
	return indent, compact
}
