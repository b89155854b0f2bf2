package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestNamesInDocuments looks for each test that a document names. A name followed by … stands for all that begin so.
func TestNamesInDocuments(t *testing.T) {
	cmd := exec.Command("git", "grep", "-hoE", "^func (Test|Fuzz)[A-Za-z0-9_]+", "--", "*.go")
	cmd.Dir = "../.."
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("git grep: %v", err)
	}
	functions := string(list)
	named := regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)(…?)`)
	example := regexp.MustCompile(`(?m)^func .*$`) // a test that a reader writes
	for file, text := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(example.ReplaceAllString(text, ""), -1) {
			function := "func " + m[1]
			if m[2] == "" {
				function += "\n"
			}
			if !strings.Contains(functions+"\n", function) {
				t.Errorf("%s names %s, which does not exist", file, m[1]+m[2])
			}
		}
	}
}
