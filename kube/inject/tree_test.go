package inject

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	kjson "sigs.k8s.io/json"
	sigs "sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/podgen"
)

// TestTreeIsJSON: a pod's tree, and the YAML that is written of it, equal its JSON.
func TestTreeIsJSON(t *testing.T) {
	for _, pod := range podgen.Pods(2, 500) {
		for _, injected := range []bool{false, true} {
			if injected {
				pod, _ = Pod(pod, testOptions())
			}
			text, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			var want any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &want); err != nil {
				t.Fatal(err)
			}
			if got := new(treeing).of(reflect.ValueOf(pod)); !reflect.DeepEqual(got, want) {
				t.Fatalf("%v\nis not\n%s", got, text)
			}
			written, err := sigs.YAMLToJSON(appendYAML([]byte("pod:"), reflect.ValueOf(pod), 0, false))
			var got map[string]any
			if err = errors.Join(err, kjson.UnmarshalCaseSensitivePreserveInts(written, &got)); err != nil ||
				!reflect.DeepEqual(got["pod"], want) {
				t.Fatalf("%v\n%s\nis not\n%s", err, written, text)
			}
		}
	}
}
