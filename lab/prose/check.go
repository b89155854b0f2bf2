package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// finding is one place with a wording that a rule replaces.
type finding struct {
	file string
	line int
	rule rule
	text string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: write %s", f.file, f.line, f.text, f.rule.instead)
}

// checkTree checks all files that are, or would be, under version control.
func checkTree(top string) (found []finding, err error) {
	cmd := exec.Command("git", "ls-files", "-z", "-co", "--exclude-standard")
	cmd.Dir, cmd.Stderr = top, os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", top, err)
	}
	for name := range strings.SplitSeq(string(list), "\x00") {
		if skipped(name) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		if err != nil {
			return nil, err
		}
		for _, p := range passages(name, content) {
			for _, f := range check(rules, p.text) {
				f.file, f.line = name, f.line+p.line
				found = append(found, f)
			}
		}
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		for _, p := range identifierPassages(content) {
			for _, f := range check(nameRules, p.text) {
				f.file, f.line = name, p.line
				found = append(found, f)
			}
		}
	}
	return found, nil
}

// skipped reports whether a file is not checked at all: test data follows the texts of the code, and this folder
// holds the wordings themselves, as does the page that explains them.
func skipped(name string) bool {
	return name == "" || name == "docs/writing.md" ||
		strings.Contains(name, "testdata/") || strings.HasPrefix(name, "lab/prose/")
}

// check finds the wordings of the rules in a text; lines count from 0.
func check(rules []rule, text string) (found []finding) {
	for _, r := range rules {
		for _, at := range r.pattern.FindAllStringIndex(text, -1) {
			if r.excepted(text, at[0], at[1]) || isAllowed(text, at[0], at[1]) {
				continue
			}
			found = append(found, finding{
				line: strings.Count(text[:at[0]], "\n"),
				rule: r,
				text: strings.Join(strings.Fields(text[at[0]:at[1]]), " "),
			})
		}
	}
	return found
}

// excepted reports whether the rule's exception covers the finding at from.
func (r rule) excepted(text string, from, to int) bool {
	return r.except != nil && covers(r.except.FindAllStringIndex, text, from, to)
}

func covers(find func(string, int) [][]int, text string, from, to int) bool {
	start, end := max(0, from-40), min(len(text), to+40)
	for _, at := range find(text[start:end], -1) {
		if at[0] <= to-start && at[1] >= from-start {
			return true
		}
	}
	return false
}

func isAllowed(text string, from, to int) bool {
	for _, a := range allowed {
		if i := strings.Index(text[max(0, from-len(a.text)):min(len(text), to+len(a.text))], a.text); i >= 0 {
			return true
		}
	}
	return false
}
