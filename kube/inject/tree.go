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

// treeing makes trees of values of Go types, as their JSON would be read, without writing most of it.
type treeing struct{ err error }

func (t *treeing) of(v reflect.Value) any {
	v = inner(v)
	switch kind := v.Kind(); {
	case kind == reflect.Invalid:
		return nil
	case kind == reflect.Struct:
		all := fieldsOf(v.Type())
		if all == nil {
			break
		}
		out := map[string]any{}
		for _, f := range all {
			if value := f.in(v); value.IsValid() {
				out[f.name] = t.of(value)
			}
		}
		return out
	case kind == reflect.Map:
		out := make(map[string]any, v.Len())
		for entries := v.MapRange(); entries.Next(); {
			out[entries.Key().String()] = t.of(entries.Value())
		}
		return out
	case kind == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = t.of(v.Index(i))
		}
		return out
	case kind == reflect.String:
		return v.String()
	case kind == reflect.Bool:
		return v.Bool()
	case v.CanInt():
		return v.Int()
	}
	return t.read(v.Interface())
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

// read is a value of another type, by its JSON.
func (t *treeing) read(v any) (out any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &out)
	}
	if err != nil {
		t.err = fmt.Errorf("write as JSON: %w", err)
	}
	return out
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
