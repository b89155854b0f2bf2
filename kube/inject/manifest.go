package inject

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"sync"

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
// change, are returned byte for byte; the others keep their order and comments. options returns the options of one
// workload. The labels and annotations of a Namespace in the text apply to its workloads, at any position, unless options set others. An
// error names the document; then the text is nil.
func Manifest(text []byte, options func(*manifest.Workload) Options) ([]byte, []Done, error) {
	return injectAll(text, true, options)
}

func injectAll(text []byte, isOffline bool, options func(*manifest.Workload) Options) ([]byte, []Done, error) {
	var documents []*document
	for _, one := range manifest.Documents(text) {
		documents = append(documents, &document{Document: one})
	}
	inParallel(documents, func(_ int, d *document) { d.objects, d.err = d.Objects() })
	namespaces := map[string]Namespace{}
	for i, d := range documents {
		if d.err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", i+1, d.err)
		}
		d.addNamespaces(namespaces)
	}
	var one sync.Mutex // options need not be safe for concurrent calls
	inNamespace := func(w *manifest.Workload) Options {
		one.Lock()
		o := options(w)
		one.Unlock()
		o.Offline = isOffline
		if o.Namespace.Labels == nil {
			o.Namespace.Labels, o.Namespace.Annotations = namespaces[o.Namespace.Name].Labels, namespaces[o.Namespace.Name].Annotations
		}
		return o
	}
	inParallel(documents, func(i int, d *document) {
		d.edited, d.done, d.err = d.inject(fmt.Sprintf("document %d", i+1), inNamespace)
		d.objects = nil
	})
	var out bytes.Buffer
	var done []Done
	for i, d := range documents {
		if d.err != nil {
			return nil, nil, fmt.Errorf("document %d (line %d): %w", i+1, d.Line, d.err)
		}
		done = append(done, d.done...)
		out.Write(d.edited)
	}
	return out.Bytes(), done, nil
}

// document is one document of the text, its objects, and the result.
type document struct {
	manifest.Document
	objects []*manifest.Object
	edited  []byte
	done    []Done
	err     error
}

// inParallel calls f for each document, on all processors.
func inParallel(documents []*document, f func(i int, d *document)) {
	var running sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, d := range documents {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			f(i, d)
		})
	}
	running.Wait()
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

// edit applies a patch to the document's nodes and writes it in the document's own
// style.
func (d *document) edit(operations []Operation) ([]byte, error) {
	var root yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(d.Text)).Decode(&root); err != nil {
		return nil, err
	}
	if err := dereference(&root, 0); err != nil {
		return nil, err
	}
	flow := root.Content[0].Style&yaml.FlowStyle != 0
	for _, op := range operations {
		if err := applyTo(root.Content[0], op, flow); err != nil {
			return nil, fmt.Errorf("%s %s: %w", op.Op, op.Path, err)
		}
	}
	var out bytes.Buffer
	if flow && isJSON(d.Text) {
		if err := writeJSON(&out, root.Content[0]); err != nil {
			return nil, err
		}
	} else if err := d.write(&out, &root); err != nil {
		return nil, err
	}
	if bytes.Contains(d.Text, []byte("\r\n")) {
		return bytes.ReplaceAll(out.Bytes(), []byte("\n"), []byte("\r\n")), nil
	}
	return out.Bytes(), nil
}

func (d *document) write(out io.Writer, root *yaml.Node) error {
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
