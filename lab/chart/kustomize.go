package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"
)

// generated is the first line of each file that writeBase may replace.
const generated = "# Made by `make image` or `make push` from deploy/chart; change it there.\n"

// helmOnly are labels that say nothing where Helm is not.
var helmOnly = []string{"app.kubernetes.io/managed-by", "helm.sh/chart"}

// base is the kustomize base, file by file: the chart rendered with these values.
func base(c *chart.Chart, values map[string]any) (map[string][]byte, error) {
	r, err := render(c, values, "lastcall", defaultNamespace)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"namespace.yaml": []byte(generated + `apiVersion: v1
kind: Namespace
metadata:
  name: ` + defaultNamespace + `
  labels:
    app.kubernetes.io/name: lastcall
    pod-security.kubernetes.io/enforce: ` + podSecurity(r.objects) + `
`)}
	order := []string{"namespace.yaml"}
	for _, o := range r.objects {
		text, err := withoutHelm(o.text)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.kind, o.name, err)
		}
		name := path.Base(o.template)
		if files[name] == nil {
			order, files[name] = append(order, name), []byte(generated)
		} else {
			files[name] = append(files[name], "---\n"...)
		}
		files[name] = append(files[name], text...)
	}
	var list bytes.Buffer
	list.WriteString(generated + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n")
	for _, name := range order {
		fmt.Fprintf(&list, "  - %s\n", name)
	}
	files["kustomization.yaml"] = list.Bytes()
	return files, nil
}

// podSecurity is the level that the namespace must admit: the observer sees the node's processes.
func podSecurity(objects []object) string {
	if slices.ContainsFunc(objects, func(o object) bool { return o.kind == "DaemonSet" }) {
		return "privileged"
	}
	return "restricted"
}

// withoutHelm drops Helm's labels and brings the rest into one form.
func withoutHelm(text string) ([]byte, error) {
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		return nil, err
	}
	drop(o, "metadata", "labels")
	drop(o, "spec", "template", "metadata", "labels")
	return yaml.Marshal(o)
}

func drop(o map[string]any, way ...string) {
	for _, key := range way {
		next, ok := o[key].(map[string]any)
		if !ok {
			return
		}
		o = next
	}
	for _, label := range helmOnly {
		delete(o, label)
	}
}

// writeBase writes the base, and removes the files of an earlier one.
func writeBase(c *chart.Chart, values map[string]any, to string) error {
	files, err := base(c, values)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(to, "*.yaml"))
	if err != nil {
		return err
	}
	for _, name := range old {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(text), generated) {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
