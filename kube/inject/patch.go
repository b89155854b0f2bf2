package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Operation is one operation of a JSON Patch (RFC 6902): add, remove or replace.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"` // a remove has none: null
}

// Diff is the patch from before to after; both are compared as JSON.
//
// Both must have been decoded into the same types. A field that these types lack (of a newer API server) is then in
// neither, and the patch does not change it. For the same reason list elements are identified by their names, and not
// rewritten because others were inserted before them.
func Diff(before, after any) ([]Operation, error) {
	var texts [2]json.RawMessage
	for i, v := range []any{before, after} {
		var err error
		if texts[i], err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("write as JSON: %w", err)
		}
	}
	var d differ
	d.compare("", texts[0], texts[1])
	return d.operations, nil
}

type differ struct{ operations []Operation }

// compare compares two values, which json.Marshal has written: equal ones have the same text.
func (d *differ) compare(path string, a, b json.RawMessage) {
	switch {
	case bytes.Equal(a, b):
	case a[0] == '{' && b[0] == '{':
		d.compareMaps(path, read[map[string]json.RawMessage](a), read[map[string]json.RawMessage](b))
	case a[0] == '[' && b[0] == '[' && d.compareLists(path, read[[]json.RawMessage](a), read[[]json.RawMessage](b)):
	default:
		d.operations = append(d.operations, Operation{"replace", path, b})
	}
}

// read reads a text that json.Marshal has written, and as much of it as has its type.
func read[T any](text json.RawMessage) (v T) {
	_ = json.Unmarshal(text, &v)
	return v
}

var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) compareMaps(path string, a, b map[string]json.RawMessage) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		was, had := a[key]
		is, has := b[key]
		switch at := path + "/" + inPointer.Replace(key); {
		case !has:
			d.operations = append(d.operations, Operation{Op: "remove", Path: at})
		case !had:
			d.operations = append(d.operations, Operation{"add", at, is})
		default:
			d.compare(at, was, is)
		}
	}
}

// compareLists identifies elements by their names, or else by their positions. It returns false, without an operation,
// if the elements of a are not those of b in the same order, with others between them.
func (d *differ) compareLists(path string, a, b []json.RawMessage) bool {
	was, isNamed := names(a)
	is, areNamed := names(b)
	if !isNamed || !areNamed {
		was, is = make([]string, len(a)), make([]string, len(b)) // only additions at the end
	}
	mark, from := len(d.operations), 0
	for i, element := range b {
		if at := path + "/" + strconv.Itoa(i); from < len(was) && was[from] == is[i] {
			d.compare(at, a[from], element)
			from++
		} else {
			d.operations = append(d.operations, Operation{"add", at, element})
		}
	}
	if from < len(was) { // an element was removed, or its position has changed
		d.operations = d.operations[:mark]
	}
	return from == len(was)
}

// names are the names of a list's elements, if all have different names.
func names(list []json.RawMessage) (all []string, ok bool) {
	for _, element := range list {
		name := string(read[map[string]json.RawMessage](element)["name"])
		if !strings.HasPrefix(name, `"`) || slices.Contains(all, name) {
			return nil, false
		}
		all = append(all, name)
	}
	return all, true
}
