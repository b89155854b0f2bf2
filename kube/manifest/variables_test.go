package manifest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

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
		got := manifest.Expanded(c)
		if got.Command[0] != want || got.Args[0] != want || c.Args[0] != text || env[2].Value != "$(A),$(LATER)" {
			t.Errorf("%q: %q and %q, want %q", text, got.Command, got.Args, want)
		}
	}
}
