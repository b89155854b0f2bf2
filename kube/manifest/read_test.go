package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

const several = `# a comment
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: first}
  spec:
    containers:
    - name: web
      image: web
- apiVersion: v1
  kind: List
  items:
  - {apiVersion: apps/v1, kind: Deployment, metadata: {name: second, namespace: shop}}
---
a: [
---
kind: Pod
apiVersion: v1
metadata:
  generateName: third-
  annotations:
    example.com/a: b
`

func TestParse(t *testing.T) {
	f := manifest.Parse("several.yaml", []byte(several))
	var names []string
	for _, o := range f.Objects {
		names = append(names, o.String())
	}
	if got := strings.Join(names, ", "); got != "Pod first, Deployment shop/second, Pod third-" {
		t.Errorf("objects %s", got)
	}
	for _, c := range []struct {
		object int
		path   string
		line   int
	}{
		{0, "", 5}, {0, "spec.containers[web].image", 11}, {0, "spec.containers[0].image", 11}, {0, "spec.containers[web].lifecycle", 10}, {1, "spec", 15},
		{2, "metadata.annotations[example.com/a]", 24},
	} {
		if got := f.Objects[c.object].Line(c.path); got != c.line {
			t.Errorf("%s of %s: line %d, want %d", c.path, f.Objects[c.object], got, c.line)
		}
	}
	if len(f.Problems) != 1 || !strings.HasPrefix(f.Problems[0].Error(), "line 17: ") {
		t.Errorf("problems %v", f.Problems)
	}
}

// TestJSONStream: JSON objects one after the other, as jq writes them, are all read, and none of their bytes is lost.
func TestJSONStream(t *testing.T) {
	const text = "\n{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n \"metadata\": {\"name\": \"a\"}}\n\n" +
		"{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n \"metadata\": {\"name\": \"b\"}}\n \n"
	f := manifest.Parse("stream.json", []byte(text))
	if len(f.Objects) != 2 || len(f.Problems) > 0 || f.Objects[1].Name != "b" || f.Objects[1].Line("metadata.name") != 6 {
		t.Errorf("%v, problems %v", f.Objects, f.Problems)
	}
	var all []byte
	for _, d := range manifest.Documents([]byte(text)) {
		all = append(all, d.Text...)
	}
	if string(all) != text {
		t.Errorf("%q", all)
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "kind: Pod\napiVersion: v1", "below/b.json": `{"kind": "Pod", "apiVersion": "v1"}`, "below/c.txt": "a: [", ".git/d.yaml": "a: [",
		"chart/templates/e.yml": "kind: {{ .Values.kind }}\napiVersion: v1\n{{- end }}",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct {
		name  string
		paths []string
		want  string // names and numbers of objects, or the error
	}{
		{"a folder", []string{"."}, "a.yaml 1, below/b.json 1, chart/templates/e.yml 0 template"},
		{"a pattern, and the same file again", []string{"*/b.*", "./below/b.json", "below/b.json"}, "below/b.json 1, ./below/b.json 1"},
		{"a folder of a pattern", []string{"b*"}, "below/b.json 1"},
		{"standard input", []string{"-"}, "standard input 1"},
		{"a file of any name", []string{"below/c.txt"}, "below/c.txt 0 problem"},
		{"no such file", []string{"missing.yaml"}, "stat missing.yaml: no such file or directory"},
		{"a pattern without a file", []string{"*.toml"}, "pattern *.toml matches no file"},
		{"a wrong pattern", []string{"[a"}, "pattern [a: syntax error in pattern"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := manifest.Read(c.paths, strings.NewReader("kind: Pod\napiVersion: v1"))
			var got []string
			if err != nil {
				got = append(got, err.Error())
			}
			for _, f := range files {
				text := f.Name + " " + string(rune('0'+len(f.Objects)))
				for _, p := range f.Problems {
					text += map[bool]string{true: " template", false: " problem"}[p.IsTemplate]
				}
				got = append(got, text)
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%s, want %s", strings.Join(got, ", "), c.want)
			}
		})
	}
}

// TestBounds reads inputs that would take much memory or time.
func TestBounds(t *testing.T) {
	if f, err := manifest.Read([]string{"/dev/zero"}, nil); err != nil || len(f[0].Problems) != 1 || !strings.Contains(f[0].Problems[0].Error(), "split it") {
		t.Errorf("an endless file: %v, %v", f, err)
	}
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		before := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+before+", ", 9) + "*" + before + "]\n"
	}
	if f := manifest.Parse("bomb", []byte(bomb)); len(f.Problems) != 1 {
		t.Errorf("a bomb of aliases: %v", f.Problems)
	}
	bomb = "{kind: Template, apiVersion: v1, parameters: [{name: A, value: " + strings.Repeat("a", 10<<10) + "}], objects: [{a: \"" + strings.Repeat("${A}", 10<<10) + "\"}]}"
	if f := manifest.Parse("bomb", []byte(bomb)); len(f.Problems) != 1 || !strings.Contains(f.Problems[0].Error(), "parameters add more") {
		t.Errorf("a bomb of parameters: %v", f.Problems)
	}
	deep := strings.Repeat(`{"kind": "List", "apiVersion": "v1", "items": [`, 1000) + strings.Repeat("]}", 1000)
	if f := manifest.Parse("deep", []byte(deep)); len(f.Problems) != 1 || !strings.Contains(f.Problems[0].Error(), "more than 8 Lists") {
		t.Errorf("Lists in Lists: %v", f.Problems)
	}
	const item = "- {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: web}]}}\n"
	began := time.Now()
	for i, o := range manifest.Parse("list", []byte("apiVersion: v1\nkind: List\nitems:\n"+strings.Repeat(item, 2000))).Objects {
		if line := o.Line("spec.containers[web].image"); line != 4+i {
			t.Fatalf("object %d of a long List: line %d", i, line)
		}
	}
	if took := time.Since(began); took > 30*time.Second { // minutes, if each object parses the List
		t.Errorf("the lines of a long List took %v", took)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(several))
	f.Add([]byte("{kind: Template, apiVersion: v1, parameters: [{name: A, value: 1}], objects: [{kind: Pod, apiVersion: v1, spec: {terminationGracePeriodSeconds: '${{A}}'}}]}"))
	f.Add([]byte("\ufeff{\"kind\": 1}\n--- {}\n--- &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, o := range manifest.Parse("fuzz", text).Objects {
			if line := o.Line("spec.template.spec.containers[a].image"); line < 1 {
				t.Errorf("%s at line %d", o, line)
			}
			all, _ := manifest.ReadWorkloads(o.JSON)
			for _, w := range all {
				if w.Pod == nil || o.Line(w.FieldPath("spec")) < 1 {
					t.Errorf("%s has no pod", o)
				}
				_ = w.Strays()
			}
			_ = o.Unread(o.Workloads())
		}
	})
}

// A CustomResourceDefinition is read, and one that is not readable is a problem as any other text.
func TestDefinitions(t *testing.T) {
	const head = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: widgets.example.com\n  labels: {a: b}\n"
	const config = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: holder}\ndata:\n  crd: |\n    kind: CustomResourceDefinition\n"
	f := manifest.Parse("crds.yaml", []byte(head+"spec:\n  group: example.com\n"+config+"---\n"+head+"spec: [\n"))
	if len(f.Objects) != 2 || f.Objects[0].String() != "CustomResourceDefinition widgets.example.com" || f.Objects[1].String() != "ConfigMap holder" {
		t.Errorf("objects %v", f.Objects)
	}
	if line := f.Objects[0].Line("spec.group"); line != 7 {
		t.Errorf("spec.group: line %d, want 7", line)
	}
	var c struct{ Data map[string]string }
	if err := f.Objects[1].Decode(&c); err != nil {
		t.Error(err)
	}
	if len(f.Problems) != 1 || f.Problems[0].Line != 21 {
		t.Errorf("problems %v, want one in line 21", f.Problems)
	}
}
