package manifest_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

func TestExpanded(t *testing.T) {
	from := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	env := []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "EMPTY"}, {Name: "LIST", Value: "$(A),$(LATER)"}, {Name: "LATER", Value: "2"},
		{Name: "POD", Value: "early"}, {Name: "POD", ValueFrom: from}, {Name: "PRICE", Value: "$$(A)"}}
	for text, want := range map[string]string{
		"":                      "",
		"$(A)":                  "1",
		"--to=$(A):$(LATER)/x":  "--to=1:2/x",
		"[$(EMPTY)]":            "[]",
		"$(LIST)":               "1,$(LATER)", // LATER comes after LIST
		"$(PRICE)":              "$(A)",       // once
		"$(POD) $(NONE) $()":    "$(POD) $(NONE) $()",
		"$$(A) $$$(A) $$$$(A)":  "$(A) $1 $$(A)",
		"$A ${A} $ é$é $":       "$A ${A} $ é$é $",
		"$(A":                   "$(A",
		"$($(A)) $(A)) $(A\n)":  "$($(A)) 1) $(A\n)",
		"sh -c 'echo $$HOME$$'": "sh -c 'echo $HOME$'",
	} {
		c := corev1.Container{Command: []string{text}, Args: []string{text}, Env: env}
		got := new(manifest.Expansion).Container(c)
		if got.Command[0] != want || got.Args[0] != want || c.Args[0] != text || env[2].Value != "$(A),$(LATER)" {
			t.Errorf("%q: %q and %q, want %q", text, got.Command, got.Args, want)
		}
	}
}

// doubling is a container whose variables grow when they are expanded.
func doubling(t *testing.T) corev1.Container {
	text, err := os.ReadFile("testdata/doubling.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var p corev1.Pod
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatal(err)
	}
	return p.Spec.Containers[0]
}

// TestExpansionIsBounded: 1.6 KB of references would have gigabytes as values. The limit is one for all containers of a pod.
func TestExpansionIsBounded(t *testing.T) {
	var expansion manifest.Expansion
	size, written := 0, 0
	for range 100 {
		c := doubling(t)
		was, is := slices.Clone(c.Args), expansion.Container(c)
		for i := range is.Env {
			size, written = size+len(is.Env[i].Value), written+len(c.Env[i].Value)
		}
		if is.Args[0] != was[0] {
			t.Errorf("the limit was reached before, but %s became %d bytes", was[0], len(is.Args[0]))
		}
	}
	if !expansion.IsCut || size > written+128<<10 {
		t.Errorf("%d bytes of references became %d; reported: %t", written, size, expansion.IsCut)
	}
	small := doubling(t)
	small.Env, small.Args = small.Env[:11], []string{"$(E10)"}
	var other manifest.Expansion
	if got := other.Container(small).Args[0]; got != strings.Repeat("0123456789", 1<<10) || other.IsCut {
		t.Errorf("10 levels became %d bytes", len(got))
	}
}
