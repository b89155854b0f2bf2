package inject

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func tree() *rapid.Generator[any] {
	leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.SampledFrom([]string{"", "a", "~/", "null"}), func(s string) any { return s }),
		rapid.Map(rapid.IntRange(0, 3), func(i int) any { return float64(i) }))
	key := rapid.SampledFrom([]string{"a", "b", "name", "x/y", "~"})
	named := func(inner *rapid.Generator[any]) *rapid.Generator[any] {
		return rapid.Map(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"one", "two", "three", "four"}), 0, 4, rapid.ID[string]), func(names []string) any {
			out := []any{}
			for _, n := range names {
				out = append(out, map[string]any{"name": n})
			}
			return out
		})
	}
	level := leaf
	for range 3 {
		inner := level
		level = rapid.OneOf(leaf, named(inner),
			rapid.Map(rapid.SliceOfN(inner, 0, 3), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(key, inner, 0, 4), func(m map[string]any) any { return m }))
	}
	return level
}

func TestDiffAppliedIsAfter(t *testing.T) {
	object := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), tree(), 0, 3)
	rapid.Check(t, func(rt *rapid.T) {
		before, after := object.Draw(rt, "before"), object.Draw(rt, "after")
		operations, err := Diff(before, after)
		if err != nil {
			rt.Fatal(err)
		}
		text, err := json.Marshal(operations) // as it goes over the wire
		if err != nil {
			rt.Fatal(err)
		}
		var read []Operation
		if err := json.Unmarshal(text, &read); err != nil {
			rt.Fatal(err)
		}
		if got := applied(t, before, read); !reflect.DeepEqual(got, any(after)) {
			rt.Fatalf("%s\nmakes %v\nof    %v\nwant  %v", text, got, before, after)
		}
	})
}
