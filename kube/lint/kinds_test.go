package lint_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// TestKinds examines the manifests of testdata/kinds. Their first lines have the findings, with their lines, a part of
// a finding's text, and a part of a note.
func TestKinds(t *testing.T) {
	names, err := filepath.Glob("testdata/kinds/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			files, err := manifest.Read([]string{name}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for line := range strings.Lines(string(files[0].Text)) {
				if rest, ok := strings.CutPrefix(line, "# "); ok {
					key, value, _ := strings.Cut(rest, ":")
					want[key] = strings.TrimSpace(value)
				}
			}
			r := lint.Examine(files, lint.Options{})
			var got []string
			text := ""
			for _, f := range r.Findings {
				got = append(got, fmt.Sprintf("%s:%d", f.ID, f.Line))
				text += f.String() + "\n"
			}
			if strings.Join(got, " ") != want["want"] || !strings.Contains(text, want["text"]) {
				t.Errorf("found %q, want %q with %q:\n%s", got, want["want"], want["text"], text)
			}
			notes := strings.Join(r.Notes, "\n")
			if (notes == "") != (want["note"] == "") || !strings.Contains(notes, want["note"]) {
				t.Errorf("notes %q, want %q", notes, want["note"])
			}
		})
	}
}
