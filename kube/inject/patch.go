package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Operation is one operation of a JSON Patch (RFC 6902): add, remove or replace.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"` // a remove has none: null
}

// Diff is the patch from before to after; both are converted to JSON first.
//
// Both must have been decoded into the same types. A field that these types lack (of a newer API server) is then in
// neither, and the patch does not change it. For the same reason list elements are identified by their names, and not
// rewritten because others were inserted before them.
func Diff(before, after any) ([]Operation, error) {
	a, err := asTree(before)
	if err != nil {
		return nil, err
	}
	b, err := asTree(after)
	if err != nil {
		return nil, err
	}
	var d differ
	d.compare("", a, b)
	return d.operations, nil
}

func asTree(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write as JSON: %w", err)
	}
	var out any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &out); err != nil {
		return nil, fmt.Errorf("read own JSON: %w", err)
	}
	return out, nil
}

type differ struct{ operations []Operation }

func (d *differ) add(op, path string, value any) {
	d.operations = append(d.operations, Operation{op, path, value})
}

func (d *differ) compare(path string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			d.compareMaps(path, a, b)
			return
		}
	case []any:
		if b, ok := b.([]any); ok && d.compareLists(path, a, b) {
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		d.add("replace", path, b)
	}
}

func (d *differ) compareMaps(path string, a, b map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[key]; !ok {
			d.add("remove", at(path, key), nil)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if old, ok := a[key]; ok {
			d.compare(at(path, key), old, b[key])
		} else {
			d.add("add", at(path, key), b[key])
		}
	}
}

// compareLists identifies elements by their names, or else by their positions. It returns false, without an operation,
// if the elements of a are not those of b in the same order, with others between them.
func (d *differ) compareLists(path string, a, b []any) bool {
	was, isNamed := names(a)
	is, areNamed := names(b)
	if !isNamed || !areNamed {
		was, is = make([]string, len(a)), make([]string, len(b)) // only additions at the end
	}
	mark, from := len(d.operations), 0
	for i := range b {
		if here := at(path, strconv.Itoa(i)); from < len(a) && was[from] == is[i] {
			d.compare(here, a[from], b[i])
			from++
		} else {
			d.add("add", here, b[i])
		}
	}
	if from < len(a) { // an element was removed, or its position has changed
		d.operations = d.operations[:mark]
	}
	return from == len(a)
}

// names are the names of a list's elements, if all have different names.
func names(list []any) (all []string, ok bool) {
	seen := make(map[string]bool, len(list))
	for _, element := range list {
		fields, _ := element.(map[string]any)
		name, ok := fields["name"].(string)
		if seen[name] || !ok {
			return nil, false
		}
		seen[name] = true
		all = append(all, name)
	}
	return all, true
}

var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// at appends to a JSON pointer (RFC 6901).
func at(path, key string) string { return path + "/" + inPointer.Replace(key) }
