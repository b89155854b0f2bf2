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

// TestPages examines the examples of the rules' pages, as a user would: the bad one has exactly that finding, the good one
// none.
func TestPages(t *testing.T) {
	list, err := os.ReadFile("../../docs/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)## (Bad|Good)\n\n```yaml\n(.*?)```")
	for _, r := range lint.Rules() {
		if !strings.Contains(string(list), "| ["+r.ID+"](rules/"+r.ID+".md) | "+r.Text+" |") {
			t.Errorf("docs/lint.md has no line for %s", r.ID)
		}
		page, err := os.ReadFile("../../docs/rules/" + r.ID + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(page), "# "+r.ID+": "+r.Text+"\n") {
			t.Errorf("the page of %s has another title", r.ID)
		}
		examples := example.FindAllSubmatch(page, -1)
		if len(examples) != 2 {
			t.Fatalf("the page of %s has %d examples", r.ID, len(examples))
		}
		for _, m := range examples {
			file := manifest.Parse(r.ID, m[2])
			result := lint.Examine([]*manifest.File{file}, lint.Options{})
			isBad := string(m[1]) == "Bad"
			if got := result.Findings; isBad != (len(got) == 1 && got[0].ID == r.ID) || !isBad && len(got) > 0 || result.Examined == 0 && r.ID != "LC000" {
				t.Errorf("%s, %s example: %v", r.ID, m[1], got)
			}
		}
	}
}

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
				for _, f := range lint.Pod(d.Workload.Pod, d.Workload.IsJob(), "") {
					t.Errorf("%s: %s: %s", file, d.Workload, f)
				}
			}
		}
	}
	if workloads < 7 {
		t.Errorf("%d workloads in the task pages, want one in each of at least 7", workloads)
	}
}

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
		for _, f := range lint.Pod(done[0].Workload.Pod, false, "") {
			t.Errorf("%s: %s", file, f)
		}
	}
}
