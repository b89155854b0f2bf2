package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// TestTaskPages injects into the manifests of the pages "I run …" and lints them: each is injected, without a finding.
func TestTaskPages(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	workloads := 0
	for _, file := range files {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(page), "# I run ") {
			continue
		}
		for _, m := range block.FindAllSubmatch(page, -1) {
			_, done, err := inject.Manifest(m[1], func(w *manifest.Workload) inject.Options {
				return inject.Options{Image: "registry.example.com/team/lastcall:1.2.0", Token: "0123456789abcdef"}
			})
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			for _, d := range done {
				workloads++
				if d.Result.Outcome != inject.Injected {
					t.Errorf("%s: %s: %+v", file, d.Workload, d.Result)
				}
				settings, err := inject.Resolve("", d.Workload.Pod.Annotations, nil)
				for _, f := range lint.Pod(lint.Input{Pod: d.Workload.Pod, Job: d.Workload.IsJob(), Settings: settings, Err: err}) {
					t.Errorf("%s: %s: %s", file, d.Workload, f)
				}
			}
		}
	}
	if workloads < 7 {
		t.Errorf("%d workloads in the task pages, want one in each of at least 7", workloads)
	}
}
