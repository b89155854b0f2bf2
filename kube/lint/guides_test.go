package lint_test

import (
	"testing"

	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// TestGuides examines the manifests of published guides: each has its known mistake and nothing else.
func TestGuides(t *testing.T) {
	want := map[string]string{ // by the guide
		"global-exit-on-zero-15s": "LC005", "global-termination-drain-30s": "LC003", "per-pod-exit-on-zero": "LC005",
		"per-pod-nested-stats-matcher": "LC007", "per-pod-termination-drain": "LC003", "prestop-netstat": "LC015",
	}
	files, err := manifest.Read([]string{"../../internal/sidecar/meshconfig/testdata/guides/*.yaml"}, nil)
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		name := f.Name[len("../../internal/sidecar/meshconfig/testdata/guides/") : len(f.Name)-len(".yaml")]
		result := lint.Examine([]*manifest.File{f}, lint.Options{})
		if got := result.Findings; len(got) != 1 || got[0].ID != want[name] {
			t.Errorf("%s: %v, want %q", name, got, want[name])
		}
		if result.Examined == 0 {
			t.Errorf("%s: nothing examined", name)
		}
	}
}
