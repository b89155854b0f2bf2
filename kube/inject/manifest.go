package inject

import (
	"bytes"
	"encoding/json"
	"fmt"

	kjson "sigs.k8s.io/json"
	sigs "sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// Done is the result for one workload of a manifest.
type Done struct {
	Where    string // which document, and the line in it
	Workload *manifest.Workload
	Result   Result
}

// Manifest injects into the workloads of a text of YAML documents (or JSON). Documents without a workload, or without a
// change, are returned byte for byte; the others are written again, without comments. options returns the options of
// one workload. The labels and annotations of a Namespace in the text apply to its workloads, at any position, unless
// options set others. An error names the document; then the text is nil.
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

// edit applies a patch to the document's JSON and writes it as YAML, or as JSON if it was. The order of the fields is
// theirs by name, as kubectl has it.
func (d *document) edit(operations []Operation) ([]byte, error) {
	text, err := sigs.YAMLToJSON(d.Text)
	if err != nil {
		return nil, err
	}
	var root any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &root); err != nil {
		return nil, err
	}
	for _, op := range operations {
		root = op.apply(root)
	}
	if json.Valid(d.Text) { // and not only YAML's flow style
		out, err := json.MarshalIndent(root, "", "  ")
		return append(out, '\n'), err
	}
	out, err := sigs.Marshal(root)
	if bytes.HasPrefix(d.Text, []byte("---")) {
		out = append([]byte("---\n"), out...)
	}
	return out, err
}
