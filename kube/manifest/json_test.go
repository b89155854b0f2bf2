package manifest

import (
	stdjson "encoding/json"
	"reflect"
	"testing"

	sigs "sigs.k8s.io/yaml"
)

// FuzzJSON: a node is read as the API server's parser reads its text.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		"a: 1\nb: [yes, no, 0x1f, 1e3, 100m, -1, -.5, ~, , '', 08, 1.25, 1.2.3, -f, --f, -_1, -]\n",
		"- 2001-01-01\n- 1_0\n" +
			"- 0o7\n- 0b1\n- +1\n- .inf\n- 1:30\n- '1'\n- n\n- off\n- offer\n- <<\n- é\\\"\n- \"\\x01<\"\n- 12345678901234567890\n",
		"{a: b, c: \"x\\ny\", 1: 2, true: 3}", "a: |+\n  x\n\n# c\nb: >-\n  q\n  r\n\n  s\n", "? a\n: b\n? [c]\n: d\n",
		"a: b\n...\nc: d", "a: 1\na: {b: 2}\n", "a: &a b\nc: *a\n<<: {d: e}\n",
		"a: !!str 1\nb: ! 2\n", "[0:, 001:db8::, a: b]", "\ufeffa: b\r\nc:\r\n- d\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if stdjson.Valid(text) {
			return
		}
		var got, want any
		js, wrong := (&Document{Text: text}).asJSON()
		wanted, err := sigs.YAMLToJSON(text)
		if (wrong != nil) != (err != nil) {
			t.Fatalf("%v, want %v", wrong, err)
		}
		if err != nil {
			return
		}
		if err := stdjson.Unmarshal(js, &got); err != nil {
			t.Fatalf("%s: %v", js, err)
		}
		if err := stdjson.Unmarshal(wanted, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nis not\n%s", js, wanted)
		}
	})
}
