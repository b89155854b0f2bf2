package outcome

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// schema is the part of a JSON schema that the test compares.
type schema struct {
	ID         string            `json:"$id"`
	Required   []string          `json:"required"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

// Each field of the result is in the published schema and required there, unless it may be left out.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("../../docs/schema/rehearsal-service-v1.json")
	must.Do(t, err)
	var s schema
	must.Do(t, json.Unmarshal(text, &s))
	if s.ID != Schema {
		t.Errorf("$id is %s, want %s", s.ID, Schema)
	}
	compare(t, "result", reflect.TypeFor[Result](), s)
}

func compare(t *testing.T, where string, v reflect.Type, s schema) {
	for v.Kind() == reflect.Slice && s.Items != nil {
		v, s = v.Elem(), *s.Items
	}
	if v.Kind() != reflect.Struct || len(s.Properties) == 0 {
		return
	}
	fields := 0
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Field(i).Tag.Get("json"), ",")
		property, found := s.Properties[name]
		if !found {
			t.Errorf("%s: %s is not in the schema", where, name)
		}
		if required := slices.Contains(s.Required, name); required == (option == "omitempty") {
			t.Errorf("%s: %s: required is %v", where, name, required)
		}
		fields++
		compare(t, where+"."+name, v.Field(i).Type, property)
	}
	if fields != len(s.Properties) {
		t.Errorf("%s: %d fields, %d in the schema", where, fields, len(s.Properties))
	}
}
