package inject

import (
	"encoding/json"
	"reflect"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/lastcall-dev/lastcall/kube/podgen"
)

// TestTreeIsJSON: a pod's tree equals its JSON.
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
		}
	}
}
