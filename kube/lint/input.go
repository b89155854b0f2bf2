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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
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

// selection has the workloads that a selector selects in a namespace.
type selection struct {
	all      *backends
	inFile   map[*manifest.File]*backends
	inFolder map[string]*backends
}

// label is one of the pods of a namespace.
type label struct{ namespace, key, value string }

func newSelection(namespace string, selector map[string]string, labelled map[label][]*workload) *selection {
	s := &selection{newBackends(), map[*manifest.File]*backends{}, map[string]*backends{}}
	selects := labels.SelectorFromSet(selector)
	var among []*workload // those with the rarest of the labels
	isFirst := true
	for key, value := range selector {
		if with := labelled[label{namespace, key, value}]; isFirst || len(with) < len(among) {
			among, isFirst = with, false
		}
	}
	for _, w := range among {
		if selects.Matches(labels.Set(w.Pod.Labels)) {
			file, folder := w.Object.File, path.Dir(w.Object.File.Name)
			if s.inFile[file] == nil {
				s.inFile[file] = newBackends()
			}
			if s.inFolder[folder] == nil {
				s.inFolder[folder] = newBackends()
			}
			for _, b := range []*backends{s.all, s.inFile[file], s.inFolder[folder]} {
				b.workloads = append(b.workloads, w)
			}
		}
	}
	return s
}

// nearby has the selected workloads that an object means: those of the same file, or else of the same folder, or else
// of the same namespace. A folder may hold many applications, all without a namespace and with the same labels. To an
// object that has twins in other files of its folder, only the same file counts: which variant an object belongs to is
// unknown.
func (s *selection) nearby(o *manifest.Object, hasTwins bool) *backends {
	inFile, inFolder := s.inFile[o.File], s.inFolder[path.Dir(o.File.Name)]
	switch {
	case hasTwins, inFile != nil:
		return inFile
	case inFolder != nil:
		first, last := inFolder.workloads[0], inFolder.workloads[len(inFolder.workloads)-1]
		if first.Object.File != last.Object.File {
			return nil // variants of one application, such as tests have: which one is meant is unknown
		}
		return inFolder
	case o.Namespace != "":
		return s.all
	}
	return nil
}

// backends are workloads that Services select together: each Service adds to them, and not to each workload.
type backends struct {
	workloads []*workload
	services  []*service                      // for requests, one of those with the same target ports
	to        map[intstr.IntOrString]*service // the first to a target port
	seen      map[string]bool
	hasty     map[time.Duration]*workload // see leavesBefore
}

func newBackends() *backends {
	return &backends{to: map[intstr.IntOrString]*service{}, seen: map[string]bool{},
		hasty: map[time.Duration]*workload{}}
}

func (b *backends) add(s *service) {
	if b == nil || !s.isForRequests() {
		return
	}
	if len(b.services) == 0 {
		for _, w := range b.workloads {
			w.backends = append(w.backends, b)
		}
	}
	targets := pod.Targets(&s.Service)
	if same := fmt.Sprint(targets); !b.seen[same] {
		b.seen[same] = true
		b.services = append(b.services, s)
		for _, t := range targets {
			if b.to[t] == nil {
				b.to[t] = s
			}
		}
	}
}

// services are those that send requests to the pod, in their order, as far as they differ for it: the first to each of
// its ports, and the first to none.
func (w *workload) services() (all []*service) {
	ports := map[intstr.IntOrString]bool{}
	for _, c := range w.Pod.Spec.Containers {
		for _, p := range c.Ports {
			ports[intstr.FromInt32(p.ContainerPort)], ports[intstr.FromString(p.Name)] = true, true
		}
	}
	for _, b := range w.backends {
		for port := range ports {
			if s := b.to[port]; s != nil && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
		isOther := func(s *service) bool {
			return !slices.ContainsFunc(pod.Targets(&s.Service), func(t intstr.IntOrString) bool { return ports[t] })
		}
		if i := slices.IndexFunc(b.services, isOther); i >= 0 {
			all = append(all, b.services[i])
		}
	}
	slices.SortFunc(all, func(a, b *service) int { return cmp.Compare(a.order, b.order) })
	return all
}

// leavesBefore is the first workload that accepts connections for less than a time, or nil.
func (b *backends) leavesBefore(d time.Duration) *workload {
	if b == nil {
		return nil
	}
	w, isKnown := b.hasty[d]
	if !isKnown {
		if i := slices.IndexFunc(b.workloads, func(w *workload) bool { return w.stays() < d }); i >= 0 {
			w = b.workloads[i]
		}
		b.hasty[d] = w
	}
	return w
}
