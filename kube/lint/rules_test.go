package lint_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

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
