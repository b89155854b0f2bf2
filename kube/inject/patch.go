package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"
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
	var d differ
	d.compare(reflect.ValueOf(before), reflect.ValueOf(after))
	return d.operations, d.err
}

type differ struct {
	treeing
	path       []string
	operations []Operation
}

// under compares what is at a key, or adds or removes what only one has.
func (d *differ) under(key string, a, b reflect.Value) {
	d.path = append(d.path, key)
	switch {
	case !b.IsValid() && a.IsValid():
		d.add("remove", b)
	case !a.IsValid() && b.IsValid():
		d.add("add", b)
	case a.IsValid():
		d.compare(a, b)
	}
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) add(op string, value reflect.Value) {
	path := ""
	for _, key := range d.path {
		path += "/" + inPointer.Replace(key)
	}
	o := Operation{Op: op, Path: path}
	if value = inner(value); value.IsValid() {
		o.Value = value.Interface()
	}
	d.operations = append(d.operations, o)
}

func (d *differ) compare(a, b reflect.Value) {
	a, b = inner(a), inner(b)
	if !a.IsValid() && !b.IsValid() {
		return
	}
	if a.IsValid() && b.IsValid() && a.Type() == b.Type() {
		switch kind := a.Kind(); {
		case kind == reflect.Struct && fieldsOf(a.Type()) != nil:
			for _, f := range fieldsOf(a.Type()) {
				d.under(f.name, f.in(a), f.in(b))
			}
			return
		case kind == reflect.Map:
			d.compareMaps(a, b)
			return
		case kind == reflect.Slice && d.compareLists(a, b):
			return
		case (kind == reflect.String || kind == reflect.Bool || a.CanInt()) && a.Equal(b):
			return
		}
	}
	if isSame := a.IsValid() && b.IsValid() && reflect.DeepEqual(a.Interface(), b.Interface()); !isSame &&
		!reflect.DeepEqual(d.of(a), d.of(b)) {
		d.add("replace", b)
	}
}

func (d *differ) compareMaps(a, b reflect.Value) {
	keys := a.MapKeys()
	for _, key := range b.MapKeys() {
		if !a.MapIndex(key).IsValid() {
			keys = append(keys, key)
		}
	}
	for _, key := range sorted(keys) {
		d.under(key.String(), a.MapIndex(key), b.MapIndex(key))
	}
}

func sorted(keys []reflect.Value) []reflect.Value {
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	return keys
}

// compareLists identifies elements by their names, or else by their positions. It returns false, without an operation,
// if the elements of a are not those of b in the same order, with others between them.
func (d *differ) compareLists(a, b reflect.Value) bool {
	was, isNamed := names(a)
	is, areNamed := names(b)
	if !isNamed || !areNamed {
		was, is = make([]string, a.Len()), make([]string, b.Len()) // only additions at the end
	}
	mark, from := len(d.operations), 0
	for i := range is {
		if from < len(was) && was[from] == is[i] {
			d.under(strconv.Itoa(i), a.Index(from), b.Index(i))
			from++
		} else {
			d.under(strconv.Itoa(i), reflect.Value{}, b.Index(i))
		}
	}
	if from < len(was) { // an element was removed, or its position has changed
		d.operations = d.operations[:mark]
	}
	return from == len(was)
}

// names are the names of a list's elements, if all have different names.
func names(list reflect.Value) (all []string, ok bool) {
	for i := range list.Len() {
		name := inner(nameOf(inner(list.Index(i))))
		if name.Kind() != reflect.String || slices.Contains(all, name.String()) {
			return nil, false
		}
		all = append(all, name.String())
	}
	return all, true
}

var nameKey = reflect.ValueOf("name")

func nameOf(element reflect.Value) (name reflect.Value) {
	switch kind := element.Kind(); {
	case kind == reflect.Map:
		return element.MapIndex(nameKey)
	case kind == reflect.Struct:
		for _, f := range fieldsOf(element.Type()) {
			if f.name == "name" {
				return f.in(element)
			}
		}
	}
	return name
}

var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// treeing makes trees of values of Go types, by their JSON.
type treeing struct{ err error }

func (t *treeing) of(v reflect.Value) (out any) {
	if v = inner(v); !v.IsValid() {
		return nil
	}
	text, err := json.Marshal(v.Interface())
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &out)
	}
	if err != nil {
		t.err = fmt.Errorf("write as JSON: %w", err)
	}
	return out
}

// inner is the value behind pointers and interfaces, and none for null.
func inner(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.IsNil() {
		return reflect.Value{}
	}
	return v
}

// field is a struct's field in JSON.
type field struct {
	name                  string
	index                 []int
	omitsEmpty, omitsZero bool
}

// in is the field of a struct, and none if JSON omits it.
func (f *field) in(v reflect.Value) (none reflect.Value) {
	v = v.FieldByIndex(f.index)
	var isEmpty bool
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		isEmpty = f.omitsEmpty && v.Len() == 0
	case reflect.Struct:
		isEmpty = f.omitsZero && v.IsZero()
	default:
		isEmpty = f.omitsEmpty && v.IsZero()
	}
	if isEmpty {
		return none
	}
	return v
}

var fields sync.Map // of a type, its []field

// fieldsOf are a struct's fields by name, and none of a type that says itself what it is in JSON.
func fieldsOf(t reflect.Type) []field {
	known, ok := fields.Load(t)
	if !ok {
		known, _ = fields.LoadOrStore(t, readFields(t))
	}
	return known.([]field)
}

func readFields(t reflect.Type) (all []field) {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return nil
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			for _, inner := range fieldsOf(f.Type) {
				inner.index = slices.Concat(f.Index, inner.index)
				all = append(all, inner)
			}
		case name != "-" && f.IsExported():
			all = append(all, field{cmp.Or(name, f.Name), f.Index,
				strings.Contains(options, "omitempty"), strings.Contains(options, "omitzero")})
		}
	}
	slices.SortFunc(all, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return all
}
