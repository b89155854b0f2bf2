package lint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// TestInjectedByIstio lints pods that Istio's own injector has made, before and after lastcall's: none has a finding.
func TestInjectedByIstio(t *testing.T) {
	files, err := filepath.Glob("../inject/testdata/istio/*/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, done, err := inject.Manifest(text, func(*manifest.Workload) inject.Options {
			return inject.Options{Image: "lastcall:test", Token: "0123456789abcdef"}
		})
		if err != nil || len(done) != 1 {
			t.Fatalf("%s: %v", file, err)
		}
		pod := done[0].Workload.Pod
		settings, err := inject.Resolve("", pod.Annotations, nil)
		for _, f := range lint.Pod(lint.Input{Pod: pod, Settings: settings, Err: err}) {
			t.Errorf("%s: %s", file, f)
		}
	}
}
