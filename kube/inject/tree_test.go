package inject

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	sigs "sigs.k8s.io/yaml"
)

// TestTreeIsJSON: the YAML that is written of a pod equals its JSON.
func TestTreeIsJSON(t *testing.T) {
	t.Parallel()
	for _, pod := range Pods(2, 200) {
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
			key, value := &yamlv3.Node{Kind: yamlv3.ScalarNode, Value: "pod"}, &yamlv3.Node{}
			e := &editing{added: map[*yamlv3.Node]addition{value: {value: pod}}}
			e.entry([]*yamlv3.Node{key, value}, 0)
			written, err := sigs.YAMLToJSON(e.out)
			var got map[string]any
			if err = errors.Join(e.err, err, kjson.UnmarshalCaseSensitivePreserveInts(written, &got)); err != nil ||
				!reflect.DeepEqual(got["pod"], want) {
				t.Fatalf("%v\n%s\nis not\n%s", err, written, text)
			}
		}
	}
}
