package main

import (
	"os"
	"os/exec"
	"path/filepath"
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
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	named := regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)(…?)`)
	example := regexp.MustCompile(`(?m)^func .*$`) // a test that a reader writes
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		prose := example.ReplaceAll(text, nil)
		for _, m := range named.FindAllStringSubmatch(string(prose), -1) {
			function := "func " + m[1]
			if m[2] == "" {
				function += "\n"
			}
			if !strings.Contains(functions+"\n", function) {
				t.Errorf("%s names %s, which does not exist", filepath.Base(file), m[1]+m[2])
			}
		}
	}
}
