package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// What make push writes builds as kustomize, and an overlay may change its images.
func TestKustomizeBuilds(t *testing.T) {
	const digest = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
	install := t.TempDir()
	var out bytes.Buffer
	args := []string{"kustomize", chartFolder, "--version", "0123456", "--set", "registry=registry.example.com/team,sidecar.image.digest=" + digest, "--to", install}
	for range 2 { // the second replaces the first
		must.Do(t, run(args, &out))
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), install)
	must.Do(t, err)
	text, err := resources.AsYaml()
	must.Do(t, err)
	for _, want := range []string{"image: registry.example.com/team/lastcall-controller:0123456", "- --image=registry.example.com/team/lastcall@" + digest, "kind: Namespace\nmetadata:"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "Helm") || strings.Contains(string(text), "helm") {
		t.Errorf("Helm is named where it is not")
	}
	empty := t.TempDir()
	if err := run([]string{"kustomize", chartFolder, "--to", empty}, &out); err == nil || !strings.Contains(err.Error(), "no image: set registry") {
		t.Errorf("without an image: error %v", err)
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("without an image it wrote %v (error %v)", left, err)
	}
}

func TestTableOfValuesIsCurrent(t *testing.T) {
	values, err := os.ReadFile(filepath.Join(chartFolder, "values.yaml"))
	must.Do(t, err)
	rows, err := table(values)
	must.Do(t, err)
	readme, err := os.ReadFile(filepath.Join(chartFolder, "README.md"))
	must.Do(t, err)
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
	must.Do(t, run([]string{"package", chartFolder, "--version", "0123456", "--to", dir}, &out))
	if want := filepath.Join(dir, "lastcall-0.0.0-g0123456.tgz"); strings.TrimSpace(out.String()) != want {
		t.Errorf("packed to %s, want %s", out.String(), want)
	}
	out.Reset()
	must.Do(t, run([]string{"template", filepath.Join(dir, "lastcall-0.0.0-g0123456.tgz"), "--set", "registry=registry.example.com"}, &out))
	for _, want := range []string{"image: registry.example.com/lastcall-controller:0123456\n", "--image=registry.example.com/lastcall:0123456\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the packed chart has no %q", want)
		}
	}
}
