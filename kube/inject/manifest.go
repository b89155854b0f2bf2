package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigs "sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// Done is the result for one workload of a manifest, or for what of it is not read.
type Done struct {
	Where    string // which document, and the line in it
	What     fmt.Stringer
	Workload *manifest.Workload // nil for what is not read
	Result   Result
	IsUnread bool // it is as it was
}

// Manifest injects into the workloads of a text of YAML documents (or JSON). Documents without a workload, or without a
// change, are returned byte for byte, as are all lines of the others that have no change. options returns those of one
// workload, and is called by several goroutines. The labels and annotations of a Namespace in the text apply to its
// workloads, at any position, unless options set others. What is not readable stays as it is, with the reason.
func Manifest(text []byte, options func(*manifest.Workload) Options) ([]byte, []Done, error) {
	documents := manifest.Documents(text)
	namespaces := map[string]*manifest.Object{}
	for _, d := range documents {
		if !bytes.Contains(d.Text, []byte("Namespace")) {
			continue
		}
		objects, _ := d.Objects()
		for _, o := range objects {
			if o.Kind == "Namespace" && o.APIVersion == "v1" {
				namespaces[o.Name] = o
				if o.Labels == nil { // it is known to have none
					o.Labels = map[string]string{}
				}
			}
		}
	}
	type result struct {
		text []byte
		done []Done
		err  error
	}
	results := make([]result, len(documents))
	one := func(d *manifest.Document, i int) (r result) {
		where := fmt.Sprintf("document %d (line %d)", i+1, d.Line)
		objects, problems := d.Objects()
		r.text, r.done, r.err = inject(d, objects, func(w *manifest.Workload) Options {
			o := options(w)
			if ns := namespaces[o.Namespace.Name]; ns != nil && o.Namespace.Labels == nil {
				o.Namespace.Labels, o.Namespace.Annotations = ns.Labels, ns.Annotations
			}
			return o
		})
		if r.err != nil {
			r.err = fmt.Errorf("%s: %w", where, r.err)
		}
		for _, p := range problems {
			r.done = append(r.done, unread(p, "is not readable"))
		}
		for i := range r.done {
			r.done[i].Where = where
		}
		return r
	}
	var next atomic.Int32
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) { // a goroutine for each document would grow its stack again
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(documents); i = int(next.Add(1)) - 1 {
				d := documents[i] // a copy, whose nodes do not stay
				results[i] = one(&d, i)
			}
		})
	}
	workers.Wait()
	var out []byte
	var all []Done
	for _, r := range results {
		if r.err != nil {
			return nil, nil, r.err
		}
		out, all = append(out, r.text...), append(all, r.done...)
	}
	return out, all, nil
}

// unread is the result for an object that cannot be read, and stays as it is.
func unread(what fmt.Stringer, why string) Done {
	return Done{What: what, Result: Result{Outcome: LeftAlone, Reason: why}, IsUnread: true}
}

// inject injects into the workloads among the objects of a document.
func inject(document *manifest.Document, objects []*manifest.Object,
	options func(*manifest.Workload) Options) ([]byte, []Done, error) {
	var patch []Operation
	var done []Done
	for _, o := range objects {
		all, err := o.Workloads()
		if err != nil {
			done = append(done, unread(o, err.Error()))
		}
		if why := o.Unread(all, err); why != "" {
			done = append(done, Done{What: o, Result: Result{Outcome: LeftAlone, Reason: why}})
		}
		for _, w := range all {
			operations, result, err := operate(w, options(w))
			if err != nil {
				return nil, nil, err
			}
			at := strings.Join(append([]string{o.Path}, w.Path...), "/")
			for _, op := range operations {
				op.Path = at + op.Path
				patch = append(patch, op)
			}
			done = append(done, Done{What: w, Workload: w, Result: result})
		}
	}
	if len(patch) == 0 {
		return document.Text, done, nil
	}
	edited, isRewritten, err := edit(document, patch)
	if isRewritten {
		last := &done[len(done)-1].Result
		last.Notes = append(last.Notes, "the document is written without its comments: "+
			"an anchor, an alias, a merge key or a key that stands twice is where it changes")
	}
	return edited, done, err
}

// operate injects into one workload.
func operate(w *manifest.Workload, o Options) ([]Operation, Result, error) {
	if why := w.LeftAlone(); why != "" {
		return nil, Result{Outcome: LeftAlone, Reason: why}, nil
	}
	after, result := Pod(w.Pod, o)
	operations, err := Diff(w.Pod, after)
	// The Go types have metadata in any case.
	if len(operations) > 0 && reflect.DeepEqual(w.Pod.ObjectMeta, metav1.ObjectMeta{}) {
		isBelow := func(o Operation) bool { return strings.HasPrefix(o.Path, "/metadata/") }
		operations = slices.DeleteFunc(operations, isBelow)
		operations = slices.Insert(operations, 0, Operation{Op: "add", Path: "/metadata", Value: after.ObjectMeta})
	}
	return operations, result, err
}

// edit applies a patch to a document's YAML, or else to its JSON, and writes it as JSON if it was, or as YAML with its
// fields by name: isRewritten.
func edit(d *manifest.Document, operations []Operation) (out []byte, isRewritten bool, err error) {
	isJSON := json.Valid(d.Text) // and not only YAML's flow style
	if !isJSON {
		if out, ok, err := editNodes(d.Text, d.Node(), operations); ok || err != nil {
			return out, false, err
		}
	}
	text, err := sigs.YAMLToJSON(d.Text)
	if err != nil {
		return nil, false, err
	}
	encoded, err := json.Marshal(operations)
	if err != nil {
		return nil, false, err
	}
	patch, err := jsonpatch.DecodePatch(encoded)
	if err != nil {
		return nil, false, err
	}
	if text, err = patch.Apply(text); err != nil {
		return nil, false, err
	}
	root, err := treeOf(json.RawMessage(text))
	if err != nil {
		return nil, false, err
	}
	if isJSON {
		out, err = json.MarshalIndent(root, "", "  ")
		return append(out, '\n'), false, err
	}
	out, err = sigs.Marshal(root)
	if bytes.HasPrefix(d.Text, []byte("---")) {
		out = append([]byte("---\n"), out...)
	}
	return out, bytes.Contains(d.Text, []byte("#")), err
}
