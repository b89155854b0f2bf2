package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/lastcall-dev/lastcall/internal/must"
)

const top = "../.."

// documents are the Markdown files of the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	list, err := exec.Command("git", "-C", top, "ls-files", "-z", "-co", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	all := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err == nil && !strings.Contains(name, "testdata/") {
			all[name] = string(text)
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d documents", len(all))
	}
	return all
}

// anchor is the fragment that GitHub makes of a heading.
func anchor(heading string) string {
	heading = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`\]\(([^)\s:]+)\)`)
)

// TestLinks follows each link of a document to a file of the repository, and to a heading in it.
func TestLinks(t *testing.T) {
	all := documents(t)
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			file, fragment, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(top, target)); err != nil {
				t.Errorf("%s: there is no %s", name, m[1])
				continue
			}
			found := fragment == ""
			for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(all[target], ""), -1) {
				found = found || anchor(h[1]) == fragment
			}
			if !found {
				t.Errorf("%s: %s has no such heading", name, m[1])
			}
		}
	}
}

// TestFigures wants the losses that a document links to BENCHMARKS.md, as "0 of 150", to stand in the linked section.
func TestFigures(t *testing.T) {
	all, found := documents(t), 0
	figure := regexp.MustCompile(`\[([\d,]+ of [\d,]+)\]\([./]*BENCHMARKS\.md#([^)]*)\)`)
	figures := strings.ReplaceAll(all["BENCHMARKS.md"], "*", "")
	for name, text := range all {
		for _, m := range figure.FindAllStringSubmatch(text, -1) {
			has := false
			for section := range strings.SplitSeq(figures, "\n## ") {
				title, rows, _ := strings.Cut(section, "\n")
				has = has || anchor(title) == m[2] && strings.Contains(rows, m[1])
			}
			if found++; !has {
				t.Errorf("%s: BENCHMARKS.md has no %q below %s", name, m[1], m[2])
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d figures", found)
	}
}

// TestCommandsOfBenchmarks wants each command of BENCHMARKS.md to exist: the folder of a go test, its tests and their
// flags; the target of make, and the tests and flags of its ARGS.
func TestCommandsOfBenchmarks(t *testing.T) {
	folders := map[string]string{"e2e": "lab/e2e", "e2e-mesh": "lab/e2e/mesh", "e2e-gateways": "lab/e2e/gateways", "bench": "lab/bench"}
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	must.Do(t, err)
	text, err := os.ReadFile(filepath.Join(top, "BENCHMARKS.md"))
	must.Do(t, err)
	command := regexp.MustCompile("(make|e2e|go test)? ?`([^`]+)`")
	checked, folder := 0, ""
	for _, m := range command.FindAllStringSubmatch(string(text), -1) {
		words := strings.Fields(strings.NewReplacer(`"`, " ", "ARGS=", " ").Replace(m[2]))
		switch {
		case len(words) == 0:
			continue
		case words[0] == "make" && len(words) > 1:
			target := words[1]
			if !strings.Contains("\n"+string(makefile), "\n"+target+":") {
				t.Errorf("%s: the Makefile has no %s", m[2], target)
			}
			folder = folders[target]
		case m[1] == "e2e":
			folder = folders["e2e"]
		case strings.Contains(m[2], "go test "):
			folder = regexp.MustCompile(`\./[\w/-]+`).FindString(m[2])
		case !strings.HasPrefix(words[0], "-run"):
			continue
		}
		checked++
		if problem := lacks(folder, words); problem != "" {
			t.Errorf("%s: %s", m[2], problem)
		}
	}
	if checked < 15 {
		t.Errorf("only %d commands", checked)
	}
}

// lacks names the test or the flag of a command that no file of the folder declares.
func lacks(folder string, words []string) string {
	files, err := filepath.Glob(filepath.Join(top, folder, "*.go"))
	if err != nil || len(files) == 0 {
		return "no Go files in " + folder
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		source.Write(text)
	}
	ofGo := []string{"run", "v", "timeout", "count", "parallel", "tags", "bench"}
	for i, word := range words {
		name := strings.TrimLeft(word, "-")
		switch {
		case word == "-run" && i+1 < len(words):
			test, _, _ := strings.Cut(words[i+1], "/")
			if !regexp.MustCompile(`func Test\w*` + strings.TrimPrefix(test, "Test")).MatchString(source.String()) {
				return "no test " + test + " in " + folder
			}
		case name != word && !slices.Contains(ofGo, name) && !strings.Contains(source.String(), `"`+name+`"`):
			return "no flag " + word + " in " + folder
		}
	}
	return ""
}
