package workload

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]string{"deploy/web": "deployment/web", "sts/db": "statefulset/db", "daemonsets.apps/x": "daemonset/x", "Pod/p": "pod/p"} {
		if w, err := Parse("shop", text); err != nil || w.String() != want {
			t.Errorf("%s: %v, error %v", text, w, err)
		}
	}
	for _, text := range []string{"web", "job/web", "deploy/", "deploy/a/b", ""} {
		if w, err := Parse("shop", text); err == nil {
			t.Errorf("%q: %v", text, w)
		}
	}
}
