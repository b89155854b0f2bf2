package inject

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

const commented = `# The shop's front.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web # as the Service has it
spec:
  template:
    spec:
      # Requests take up to 20 s.
      terminationGracePeriodSeconds: 60
      containers:
      - name: web
        image: "web:1" # pinned
        command: [web, --port, "8080"]
        env:
        - {name: SWITCH, value: "yes"}
        - name: TEXT
          value: |
            one
            # no comment
        ports: [{containerPort: 8080}]
# The end.
`

// TestCommentsStay: each line of a manifest is in the injected one, in its order, comments and styles too.
func TestCommentsStay(t *testing.T) {
	out, _, err := Manifest([]byte(commented), offline)
	if err != nil {
		t.Fatal(err)
	}
	rest := string(out)
	for line := range strings.Lines(commented) {
		_, after, found := strings.Cut(rest, line)
		if !found {
			t.Fatalf("%q is not in the rest, or not in its place:\n%s", line, out)
		}
		rest = after
	}
}

// TestEditsAgree: the YAML that keeps comments says the same as the JSON Patch.
func TestEditsAgree(t *testing.T) {
	files, err := filepath.Glob("testdata/manifests/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	edited := 0
	for _, file := range files {
		for _, d := range manifest.Documents(readFile(t, file)) {
			objects, _ := d.Objects()
			got, _, err := inject(d.Text, objects, offline)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(got, d.Text) {
				continue
			}
			// An anchor makes the other way the only one.
			anchored := append([]byte("x-anchor: &a b\n"), bytes.TrimPrefix(d.Text, []byte("---\n"))...)
			want, _, err := inject(anchored, objects, offline)
			if err != nil {
				continue // the document is not in block style
			}
			var a, b map[string]any
			if err := yaml.Unmarshal(got, &a); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(want, &b); err != nil {
				t.Fatal(err)
			}
			delete(b, "x-anchor")
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%s, line %d: the two ways differ:\n%s\n%s", file, d.Line, got, want)
			}
			edited++
		}
	}
	if edited < 5 {
		t.Errorf("%d documents compared", edited)
	}
}
