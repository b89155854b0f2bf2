package manifest

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/json"
)

// Workload is an object with a pod in it, or one of several pods.
type Workload struct {
	Object    *Object
	Kind      string
	Group     string // of the API
	Namespace string
	Name      string
	Part      string // names the pod among several in the object, such as replicatedJobs[1]

	Pod  *corev1.Pod // the one that it makes, with the template's metadata
	Path []string    // where the pod's metadata and spec stand in the object

	kind *kind
	text []byte // of the pod, as JSON
}

// knativeTimeout is timeoutSeconds if it is not set (Knative's config-defaults, revision-timeout-seconds).
const knativeTimeout = 300

// IsKnative reports whether Knative makes the pods, adds its queue-proxy and sets their grace period, timeoutSeconds.
func (w *Workload) IsKnative() bool { return w.Group == "serving.knative.dev" }

// IsJob reports whether the workload's pods are expected to end by themselves.
func (w *Workload) IsJob() bool { return w.kind.end == finish }

// IsRolled reports whether a rollout replaces the pods one after the other, while others serve.
func (w *Workload) IsRolled() bool { return w.kind.end == rolls }

// LeftAlone is why the object itself cannot be injected, or empty.
func (w *Workload) LeftAlone() string {
	switch {
	case w.IsKnative():
		return "Knative makes its pods: it admits few of the fields that injection adds, " +
			"and its queue-proxy drains them"
	case w.kind.form != template:
		return "its kind has no pod template: a controller makes the pods, which the webhook injects"
	}
	return ""
}
func (w *Workload) String() string {
	text := (&Object{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}).String()
	if w.Part != "" {
		text += " (" + w.Part + ")"
	}
	return text
}

// ReadWorkloads reads an object as JSON. As in the API server, field names are case-sensitive.
func ReadWorkloads(object []byte) ([]*Workload, error) {
	o, _, err := readObject(object)
	if o == nil {
		return nil, err
	}
	return o.Workloads()
}

// FieldPath is the path in the object of a field of the pod.
func (w *Workload) FieldPath(field string) string {
	path := strings.Join(w.Path, ".")
	switch {
	case w.kind.form != template:
		field = strings.TrimPrefix(field, "spec.")
	case path == "":
		return field
	}
	return path + "." + field
}

// Workloads are the object's pods, nothing for an object that contains none. The error is a *FieldError, and the other
// pods are there nevertheless.
func (o *Object) Workloads() (all []*Workload, err error) {
	k := kindOf(o)
	if k == nil {
		return nil, nil
	}
	for _, path := range k.paths {
		var keys []string
		if path != "" {
			keys = strings.Split(path, ".")
		}
		err = cmp.Or(err, each(o.JSON, nil, keys, func(text []byte, at []string) error {
			w := &Workload{Object: o, Kind: o.Kind, Group: o.Group(), Namespace: o.Namespace, Name: o.Name, Path: at,
				kind: k, text: text}
			if strings.Contains(path, "*") || len(k.paths) > 1 {
				w.Part = part(at)
			}
			if err := w.readPod(); err != nil {
				return err
			}
			if len(w.Pod.Spec.Containers) > 0 || k.form == template {
				all = append(all, w)
			}
			return nil
		}))
	}
	return all, err
}

// part is the shortest name of a path.
func part(at []string) string {
	for i := len(at) - 1; i > 0; i-- {
		if _, err := strconv.Atoi(at[i]); err == nil {
			return at[i-1] + "[" + at[i] + "]"
		}
	}
	rest := slices.DeleteFunc(slices.Clone(at), func(key string) bool { return key == "spec" || key == "template" })
	if len(rest) == 0 {
		return ""
	}
	return rest[len(rest)-1]
}

// each calls f for what stands below text at the keys.
func each(text []byte, at, keys []string, f func(text []byte, at []string) error) error {
	if len(keys) == 0 {
		return f(text, at)
	}
	fields := map[string]stdjson.RawMessage{}
	order := []string{keys[0]}
	var list []stdjson.RawMessage
	if keys[0] == "*" && stdjson.Unmarshal(text, &list) == nil {
		order = nil
		for i, element := range list {
			order = append(order, strconv.Itoa(i))
			fields[strconv.Itoa(i)] = element
		}
	} else if err := unmarshal(text, at, &fields); err != nil {
		return err
	} else if keys[0] == "*" {
		order = slices.Sorted(maps.Keys(fields))
	}
	var first error
	for _, key := range order {
		if value := fields[key]; value != nil && string(value) != "null" {
			first = cmp.Or(first, each(value, append(slices.Clip(at), key), keys[1:], f))
		}
	}
	return first
}

// steps are the containers of Argo's and Tekton's templates, which are no pods.
type steps struct {
	metav1.ObjectMeta `json:"metadata"`
	corev1.PodSpec
	Container    *corev1.Container        `json:"container"`
	Script       *corev1.Container        `json:"script"`
	ContainerSet struct{ corev1.PodSpec } `json:"containerSet"`
	Steps        []corev1.Container       `json:"steps"`
	Sidecars     []corev1.Container       `json:"sidecars"`
}

func (w *Workload) readPod() error {
	w.Pod = &corev1.Pod{}
	switch w.kind.form {
	case argo, tekton:
		return w.readSteps()
	case podSpec:
		var s struct {
			corev1.PodSpec
			Model *corev1.Container `json:"model"`
		}
		err := unmarshal(w.text, w.Path, &s)
		if w.Pod.Spec = s.PodSpec; s.Model != nil {
			s.Model.Name = cmp.Or(s.Model.Name, "kserve-container")
			w.Pod.Spec.Containers = append(w.Pod.Spec.Containers, *s.Model)
		}
		return err
	}
	var t struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			corev1.PodSpec
			Timeout *int64 `json:"timeoutSeconds"`
		} `json:"spec"`
	}
	err := unmarshal(w.text, w.Path, &t)
	w.Pod.ObjectMeta, w.Pod.Spec = t.ObjectMeta, t.Spec.PodSpec
	if w.IsKnative() {
		w.Pod.Spec.TerminationGracePeriodSeconds = ptr.To(ptr.Deref(t.Spec.Timeout, knativeTimeout))
		for i := range w.Pod.Spec.Containers {
			if c := &w.Pod.Spec.Containers[i]; c.Name == "" { // as Knative's defaults have it
				c.Name = "user-container"
			}
		}
	}
	return err
}

func (w *Workload) readSteps() error {
	var s steps
	if w.kind.form == tekton { // steps of Argo are other templates
		if err := unmarshal(w.text, w.Path, &s); err != nil {
			return err
		}
	} else {
		var fields map[string]stdjson.RawMessage
		if err := unmarshal(w.text, w.Path, &fields); err != nil {
			return err
		}
		delete(fields, "steps")
		text, err := stdjson.Marshal(fields)
		if err == nil {
			err = json.UnmarshalCaseSensitivePreserveInts(text, &s)
		}
		if err != nil {
			return &FieldError{Path: strings.Join(w.Path, "."), Err: err}
		}
	}
	all := s.ContainerSet.Containers
	for _, c := range []*corev1.Container{s.Container, s.Script} {
		if c != nil {
			c.Name = cmp.Or(c.Name, "main")
			all = append(all, *c)
		}
	}
	for i, c := range slices.Concat(s.Steps, s.Sidecars) {
		c.Name = cmp.Or(c.Name, "step-"+strconv.Itoa(i))
		all = append(all, c)
	}
	w.Pod.ObjectMeta, w.Pod.Spec.InitContainers = s.ObjectMeta, s.InitContainers
	w.Pod.Spec.Containers = all
	return nil
}

// Unread is why the pods of an object, in which Workloads has found these, are not read, or empty.
func (o *Object) Unread(found []*Workload, err error) string {
	if kindOf(o) != nil {
		if err != nil || len(found) > 0 {
			return ""
		}
		if _, _, takes := o.TakesFrom(); takes {
			return ""
		}
		return "has no pod where its kind has it: nothing in it is examined or injected"
	}
	var whole any
	if !bytes.Contains(o.JSON, []byte(`"containers"`)) || stdjson.Unmarshal(o.JSON, &whole) != nil ||
		!holdsContainers(whole) {
		return ""
	}
	return "holds containers, but its kind is unknown: they are neither examined nor injected"
}
