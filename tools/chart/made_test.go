package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const kustomizeFolder = "../../deploy/kustomize"

func TestKustomizeBaseIsCurrent(t *testing.T) {
	want, err := base(loadChart(t))
	if err != nil {
		t.Fatal(err)
	}
	have, err := filepath.Glob(kustomizeFolder + "/*")
	if err != nil || len(have) != len(want) {
		t.Errorf("there are %d files (error %v), the chart makes %d: run make manifests", len(have), err, len(want))
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(kustomizeFolder, name))
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s is not what the chart makes (error %v): run make manifests", name, err)
		}
	}
}

// An overlay as docs/install.md has it: other images for the webhook and for pods.
func TestKustomizeBuilds(t *testing.T) {
	files := filesys.MakeFsInMemory()
	base, err := base(loadChart(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range base {
		if err := files.WriteFile("/base/"+name, text); err != nil {
			t.Fatal(err)
		}
	}
	guide, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, overlay, _ := strings.Cut(string(guide), "```yaml\n# kustomization.yaml\n")
	overlay, _, ok := strings.Cut(overlay, "```")
	if !ok {
		t.Fatal("docs/install.md has no kustomization.yaml")
	}
	_, there, ok := strings.Cut(overlay, "resources:\n  - ")
	if !ok {
		t.Fatalf("there are no resources in\n%s", overlay)
	}
	remote, _, _ := strings.Cut(there, "\n")
	overlay = strings.Replace(overlay, remote, "../base", 1)
	if err := files.WriteFile("/overlay/kustomization.yaml", []byte(overlay)); err != nil {
		t.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/overlay")
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"image: registry.example/lastcallctl:0.1.0", "- --image=registry.example/lastcall:0.1.0", "kind: Namespace\nmetadata:"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the overlay makes nothing with %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "Helm") || strings.Contains(string(text), "helm") {
		t.Errorf("Helm is named where it is not")
	}
}

func TestTableOfValuesIsCurrent(t *testing.T) {
	values, err := os.ReadFile(filepath.Join(chartFolder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := table(values)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(chartFolder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), tableBegin+rows+tableEnd) {
		t.Error("the README's table of values is not what values.yaml says: run make manifests")
	}
}

func TestValueWithoutCommentIsRefused(t *testing.T) {
	if _, err := table([]byte("# A comment.\na: 1\nb: 2\n")); err == nil || !strings.Contains(err.Error(), "b has no comment") {
		t.Errorf("error %v", err)
	}
}

func TestVersions(t *testing.T) {
	for given, want := range map[string]string{"v1.2.3": "1.2.3", "1.2.3-4-gabc": "1.2.3-4-gabc", "0f2d5cf": "0.0.0-g0f2d5cf", "0123456-dirty": "0.0.0-g0123456-dirty", "devel": "0.0.0-gdevel"} {
		if got := semantic(given); got != want {
			t.Errorf("%s becomes %s, want %s", given, got, want)
		}
	}
}

func TestPackage(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run([]string{"package", chartFolder, "--version", "0123456", "--to", dir}, &out); err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "lastcall-0.0.0-g0123456.tgz"); strings.TrimSpace(out.String()) != want {
		t.Errorf("packed to %s, want %s", out.String(), want)
	}
	out.Reset()
	if err := run([]string{"template", filepath.Join(dir, "lastcall-0.0.0-g0123456.tgz")}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"image: lastcall-dev/lastcallctl:0123456\n", "--image=lastcall-dev/lastcall:0123456\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the packed chart has no %q", want)
		}
	}
}
