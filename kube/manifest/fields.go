package manifest

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/timers"
)

// FieldError is a field whose value does not have its type.
type FieldError struct {
	Path string // as Line reads it
	Err  error
}

func (e *FieldError) Error() string { return e.Path + " " + e.Err.Error() }

func (e *FieldError) Unwrap() error { return e.Err }

// unmarshal reads a text that stands at a path of the object. The error is a *FieldError.
func unmarshal(text []byte, at []string, into any) error {
	err := json.UnmarshalCaseSensitivePreserveInts(text, into)
	if err == nil {
		return nil
	}
	path := slices.Clone(at)
	wrong, isType := errors.AsType[*stdjson.UnmarshalTypeError](err)
	value, offset := badQuantity(text)
	switch {
	case isType:
		path = append(path, pathAt(text, wrong.Offset)...)
		err = fmt.Errorf("is not readable: it is %s and must be %s", described(wrong.Value), accepted(wrong.Type))
	case offset > 0:
		path = append(path, pathAt(text, offset)...)
		err = fmt.Errorf("is not readable: it is %q and must be a quantity, such as 100m or 64Mi", value)
	default:
		err = fmt.Errorf("is not readable: %w", err)
	}
	return &FieldError{Path: strings.Join(path, "."), Err: err}
}

var quantities = regexp.MustCompile(`"(?:cpu|memory|ephemeral-storage|storage|sizeLimit|[a-z0-9.-]+/[gt]pu)":("(?:[^"\\]|\\.)*")`)

// badQuantity is the first quantity in a JSON text that is none, and where it ends; 0 without one. The decoder names
// neither.
func badQuantity(text []byte) (value string, end int64) {
	for _, at := range quantities.FindAllSubmatchIndex(text, -1) {
		if stdjson.Unmarshal(text[at[2]:at[3]], &value) != nil {
			continue
		}
		if _, err := resource.ParseQuantity(value); err != nil {
			return value, int64(at[3])
		}
	}
	return "", 0
}

// described is a JSON value in the words of YAML.
func described(value string) string {
	kind, literal, _ := strings.Cut(value, " ")
	words := map[string]string{"bool": "true or false", "array": "a list", "object": "a mapping"}
	return cmp.Or(words[kind], strings.TrimSpace("a "+kind+" "+literal))
}

// accepted names a type in the words of YAML.
func accepted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	words := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a string",
		reflect.Slice: "a list", reflect.Array: "a list", reflect.Struct: "a mapping", reflect.Map: "a mapping"}
	return cmp.Or(words[t.Kind()], "a whole number")
}

// pathAt is the path of the value that ends at an offset, or whose bracket does.
func pathAt(text []byte, offset int64) []string {
	dec := stdjson.NewDecoder(bytes.NewReader(text))
	var within func(at []string) []string // is the path of the value, or of one in it; nil if it ends before
	within = func(at []string) []string {
		token, err := dec.Token()
		if err != nil || dec.InputOffset() >= offset {
			return at
		}
		bracket, _ := token.(stdjson.Delim)
		for i := 0; bracket != 0 && dec.More(); i++ {
			key := strconv.Itoa(i)
			if bracket == '{' {
				token, _ := dec.Token()
				key, _ = token.(string)
			}
			if found := within(append(slices.Clip(at), key)); found != nil {
				return found
			}
		}
		if bracket != 0 {
			_, _ = dec.Token() // the closing one
		}
		return nil
	}
	return within([]string{})
}

// Stray is a field of a pod template that the API server does not know there.
type Stray struct {
	Path string // in the object
	Text string
}

// ends are the fields of a pod's end, and where they belong.
var ends = map[string]string{
	"terminationGracePeriodSeconds": "the pod's spec, next to containers",
	"shareProcessNamespace":         "the pod's spec, next to containers",
	"hostNetwork":                   "the pod's spec, next to containers",
	"initContainers":                "the pod's spec, next to containers",
	"containers":                    "the pod's spec",
	"lifecycle":                     "a container",
	"preStop":                       "a container's lifecycle",
	"postStart":                     "a container's lifecycle",
	"stopSignal":                    "a container's lifecycle",
	"readinessProbe":                "a container",
	"livenessProbe":                 "a container",
	"startupProbe":                  "a container",
	"ports":                         "a container",
}

// Strays are the fields below the pod template that are misspelt or misplaced, and those of a pod's end above it.
func (w *Workload) Strays() (all []Stray) {
	if w.kind.form != template || w.IsKnative() {
		return nil
	}
	var t struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              corev1.PodSpec `json:"spec"`
	}
	base := strings.TrimPrefix(strings.Join(w.Path, ".")+".", ".")
	strict, _ := json.UnmarshalStrict(w.text, &t, json.DisallowUnknownFields)
	for _, err := range strict {
		field, ok := errors.AsType[json.FieldError](err)
		if !ok {
			continue
		}
		keys := fields(field.FieldPath())
		if len(w.Path) == 0 && len(keys) == 1 || strings.HasPrefix(keys[len(keys)-1], "$") {
			continue // of the object, or kustomize's
		}
		all = append(all, Stray{Path: base + field.FieldPath(), Text: strayText(keys)})
	}
	o := w.Object
	if o.document != nil && !control.Match(o.document.Text) {
		all = append(all, repeated(below(o.node(), w.Path), strings.Join(w.Path, "."))...)
	}
	for i := range w.Path {
		at := w.Path[:i]
		if !strings.Contains(" apps batch "+coreGroup, cmp.Or(w.Group, coreGroup)) {
			break
		}
		_ = each(o.JSON, nil, at, func(text []byte, at []string) error {
			var found map[string]stdjson.RawMessage
			_ = stdjson.Unmarshal(text, &found)
			for _, name := range []string{"containers", "hostNetwork", "lifecycle", "preStop", "terminationGracePeriodSeconds"} {
				if found[name] != nil {
					all = append(all, Stray{strings.Join(append(slices.Clone(at), name), "."), strayText([]string{name})})
				}
			}
			return nil
		})
	}
	return all
}

// control matches a template's condition in a comment, on which the fields depend.
var control = regexp.MustCompile(`(?m)^\s*#\s*\{\{`)

// repeated are the keys below a node that stand there twice: of these the API server's clients send the last.
func repeated(n *yaml.Node, at string) (all []Stray) {
	seen := map[string]bool{}
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			all = append(all, repeated(c, at+"["+strconv.Itoa(i)+"]")...)
		case i%2 == 1:
			all = append(all, repeated(c, strings.TrimPrefix(at+"."+n.Content[i-1].Value, "."))...)
		case seen[c.Value] && c.Value != "<<":
			all = append(all, Stray{strings.TrimPrefix(at+"."+c.Value, "."), "stands here twice: only the last one counts"})
		default:
			seen[c.Value] = true
		}
	}
	return all
}

// strayText names the place where a field belongs, or the field that is meant.
func strayText(keys []string) string {
	name := keys[len(keys)-1]
	text := "is not a field here, and the API server drops or refuses it"
	if where, ok := ends[name]; ok {
		return text + ": it belongs to " + where
	}
	known := names(reflect.TypeFor[corev1.PodTemplateSpec](), keys[:len(keys)-1])
	if near, ok := timers.Nearest(name, known); ok {
		return text + ": did you mean " + near + "?"
	}
	if near, ok := timers.Nearest(name, slices.Collect(maps.Keys(ends))); ok {
		return text + ": did you mean " + near + "? It belongs to " + ends[near]
	}
	return text
}

// names are the names of the fields of what stands at a path below a type.
func names(t reflect.Type, keys []string) (all []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		if t.Kind() != reflect.Pointer && len(keys) > 0 {
			keys = keys[1:]
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			all = append(all, names(f.Type, keys)...)
		case len(keys) == 0:
			all = append(all, name)
		case name == keys[0]:
			return names(f.Type, keys[1:])
		}
	}
	return all
}

// TakesFrom is the Deployment, or another workload, from which an Argo Rollout takes its pod template.
func (o *Object) TakesFrom() (kind, name string, isFound bool) {
	var r struct {
		Spec struct {
			Ref struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"workloadRef"`
		} `json:"spec"`
	}
	isFound = o.Is("argoproj.io", "Rollout") && o.Decode(&r) == nil && r.Spec.Ref.Name != ""
	return r.Spec.Ref.Kind, r.Spec.Ref.Name, isFound
}

// holdsContainers reports whether a list of containers stands somewhere in a value.
func holdsContainers(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		list, _ := value["containers"].([]any)
		if len(list) > 0 {
			first, _ := list[0].(map[string]any)
			if first["image"] != nil || first["lifecycle"] != nil || first["name"] != nil && first["resources"] != nil {
				return true
			}
		}
		for _, inner := range value {
			if holdsContainers(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, holdsContainers)
	}
	return false
}
