package lint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// Options of an examination.
type Options struct {
	MeshConfig string         // the text of Istio's; empty for the one in the input, if there is one
	Istio      inject.Sidecar // the form that Istio's injector adds; empty is inject.Native, its default since 1.27
}

// Found is a finding and its place.
type Found struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // 0 for a file that cannot be read
	Object string `json:"object"`
	Finding
}

// Result is the outcome of an examination.
type Result struct {
	Findings  []Found // by file, in the order of the input, and line
	Files     int
	Objects   int
	Examined  int      // objects with rules: workloads, Services, load balancers and the mesh's configuration
	Templates int      // files of templates, which are not examined
	Ignored   int      // findings that a comment switches off
	Notes     []string // what is not examined, and why
}

// Fails reports whether a finding has the severity of failOn, one of FailOn(), or a higher one.
func (r *Result) Fails(failOn string) bool {
	return failOn != "never" && slices.ContainsFunc(r.Findings, func(f Found) bool {
		return f.Severity == Error || failOn == string(Warning)
	})
}

// workload is a pod of the input and its objects.
type workload struct {
	*manifest.Workload
	*linting
	object   *manifest.Object
	backends []*backends // that it is one of

	replicas    int         // in its manifest
	scaled      []string    // what else sets the number of pods, or ends some
	takenBy     []reference // the Rollouts that take its pod template
	isRecreated bool        // a rollout ends all pods before it makes new ones
}

// service is a Service of the input.
type service struct {
	corev1.Service
	object   *manifest.Object
	order    int       // among the Services
	backends *backends // nil if it has none
}

// examination is the state of Examine.
type examination struct {
	Options
	result     *Result
	namespaces map[string]inject.Namespace
	workloads  []*workload
	named      map[[2]string][]*workload // by namespace and name, also that of a Rollout
	services   []*service
	called     map[[2]string][]*service // by namespace and name
	meshes     []string                 // texts of MeshConfigs
}

// Examine examines all objects of an input together.
func Examine(files []*manifest.File, o Options) *Result {
	e := &examination{Options: o, result: &Result{Files: len(files)}, namespaces: map[string]inject.Namespace{},
		named: map[[2]string][]*workload{}, called: map[[2]string][]*service{}}
	e.problems(files)
	var objects []*manifest.Object
	for _, f := range files {
		objects = append(objects, f.Objects...)
	}
	e.result.Objects = len(objects)
	for _, o := range objects {
		e.read(o)
	}
	if e.MeshConfig == "" && len(e.meshes) == 1 { // which of several applies is unknown
		e.MeshConfig = e.meshes[0]
	}
	for _, o := range objects {
		e.readWorkloads(o)
	}
	e.connect(objects)
	for _, w := range e.workloads {
		e.examineWorkload(w)
	}
	for _, b := range manifest.Balancers(objects) {
		e.examineBalancer(b)
	}
	e.finish(files)
	return e.result
}

// problems reports the texts that are not readable. A template is only counted: its program renders it. A folder's
// files that are no manifests do not count.
func (e *examination) problems(files []*manifest.File) {
	for _, f := range files {
		isTemplate := false
		for _, p := range f.Problems {
			if isTemplate = isTemplate || p.IsTemplate; !p.IsTemplate && !f.Passes(p) {
				unreadable := Finding{ID: "LC000", Severity: Error, Text: "is not readable: " + p.Err.Error()}
				e.result.Findings = append(e.result.Findings, Found{File: f.Name, Line: p.Line, Finding: unreadable})
			}
		}
		if isTemplate {
			e.result.Templates++
		}
	}
}

// found adds findings about an object, or about a pod in it, which the path of each is below.
func (e *examination) found(o *manifest.Object, about string, w *workload, findings ...Finding) {
	for _, finding := range findings {
		if w != nil && !finding.isOfObject {
			finding.Path = w.FieldPath(finding.Path)
		}
		e.result.Findings = append(e.result.Findings, Found{o.File.Name, o.Line(finding.Path), about, finding})
	}
}

// unreadable reports an object that does not have its kind's fields.
func (e *examination) unreadable(o *manifest.Object, err error) {
	f := Finding{ID: "LC000", Severity: Error, Text: "is not readable: " + err.Error()}
	if wrong, ok := errors.AsType[*manifest.FieldError](err); ok {
		f.Path, f.Text = wrong.Path, wrong.Err.Error()
	}
	e.found(o, o.String(), nil, f)
}

// connect finds the objects that belong to each pod.
func (e *examination) connect(objects []*manifest.Object) {
	twins := map[[2]string]int{} // Services of one name in one folder
	for _, w := range e.workloads {
		at := [2]string{w.Namespace, w.Name}
		e.named[at] = append(e.named[at], w)
	}
	for _, o := range objects {
		if o.Is("", "Service") {
			twins[keyOf(o)]++
		}
		if _, _, isRollout := o.TakesFrom(); isRollout { // before the autoscalers, which may mean it
			e.readScaler(o)
		}
	}
	for _, o := range objects {
		if o.Kind != "Rollout" {
			e.readScaler(o)
		}
	}
	labelled := map[label][]*workload{}
	for _, w := range e.workloads {
		for key, value := range w.Pod.Labels {
			at := label{w.Namespace, key, value}
			labelled[at] = append(labelled[at], w)
		}
	}
	selected := map[[2]string]*selection{} // Services often have one selector
	for i, s := range e.services {
		key := [2]string{s.Namespace, labels.Set(s.Spec.Selector).String()}
		if selected[key] == nil {
			selected[key] = newSelection(s.Namespace, s.Spec.Selector, labelled)
		}
		s.order, s.backends = i, selected[key].nearby(s.object, twins[keyOf(s.object)] > 1)
		s.backends.add(s)
	}
}

// keyOf is equal for two variants of an object, such as tests have: the folder and the name.
func keyOf(o *manifest.Object) [2]string { return [2]string{path.Dir(o.File.Name), o.String()} }

// areNear reports whether one of two objects can mean the other by its name.
func areNear(a, b *manifest.Object) bool {
	return a.Namespace == b.Namespace && (a.Namespace != "" || path.Dir(a.File.Name) == path.Dir(b.File.Name))
}

// finish sorts the findings and drops those that comments switch off, and repeated ones.
func (e *examination) finish(files []*manifest.File) {
	order := map[string]int{}
	comments := map[string]ignores{}
	for i, f := range files {
		order[f.Name] = i
		comments[f.Name] = readIgnores(f.Text)
	}
	found := len(e.result.Findings)
	isIgnored := func(f Found) bool { return slices.Contains(comments[f.File][f.Line], f.ID) }
	all := slices.DeleteFunc(e.result.Findings, isIgnored)
	e.result.Ignored = found - len(all)
	slices.SortStableFunc(all, func(a, b Found) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.ID, b.ID))
	})
	e.result.Findings = slices.Compact(all)
}

// String is the finding on one line, as compilers write theirs.
func (f Found) String() string {
	return fmt.Sprintf("%s: %s %s: %s", f.Place(), f.Severity, f.ID, f.Message())
}

// Place is where it is: FILE:LINE, or the file alone.
func (f Found) Place() string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return f.File
}

// Message is the finding without its place.
func (f Found) Message() string {
	text := f.Text
	if f.Path != "" {
		text = f.Path + " " + text
	}
	if f.Object != "" {
		text = f.Object + ": " + text
	}
	return text
}

// ignores are the rules that comments switch off, by the lines for which they do so.
type ignores map[int][]string

// ignoreComment matches "# lastcall:ignore LC001 LC014", after which a reason may follow.
var ignoreComment = regexp.MustCompile(`#\s*lastcall:ignore\s+((?:LC[0-9]{3}[\s,]*)+)`)

// readIgnores finds the comments. One counts for its own line; alone on its line, for the next line that is not a
// comment; at the head of a document, for the whole document.
func readIgnores(text []byte) ignores {
	if !bytes.Contains(text, []byte("lastcall:ignore")) {
		return nil
	}
	all := ignores{}
	var whole, next []string
	isHead, number := true, 0
	for line := range strings.Lines(string(text)) {
		number++
		stripped := strings.TrimSpace(line)
		var rules []string
		if m := ignoreComment.FindStringSubmatch(line); m != nil {
			rules = strings.FieldsFunc(m[1], func(r rune) bool { return !strings.ContainsRune("LC0123456789", r) })
		}
		switch {
		case stripped == "---" || strings.HasPrefix(line, "--- "):
			isHead, whole, next = true, nil, nil
		case strings.HasPrefix(stripped, "#") && isHead:
			whole = append(whole, rules...)
		case strings.HasPrefix(stripped, "#"):
			next = append(next, rules...)
		case stripped != "":
			isHead = false
			all[number] = append(append(all[number], next...), rules...)
			next = nil
		}
		all[number] = append(all[number], whole...)
	}
	return all
}
