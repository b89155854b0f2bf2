package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"
)

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
