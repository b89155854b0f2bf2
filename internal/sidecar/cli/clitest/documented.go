// Package clitest checks documents against the command lines that they show.
package clitest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	yamlArgs  = regexp.MustCompile(`args: \[([a-z-]+)((?:, [^]]+)*)\]`)
	yamlImage = regexp.MustCompile(`image: \S*?([a-z-]+):`)
	longFlag  = regexp.MustCompile(`^--([a-z0-9-]+)`)
)

// Documented wants every command of root that docs/, README.md, BENCHMARKS.md and CONTRIBUTING.md show, in code or as a
// container's args, to exist with the flags shown. top is the project's folder.
func Documented(t *testing.T, root *cobra.Command, top string) {
	t.Helper()
	shown := regexp.MustCompile("(?:^|[\\s`/(|])" + root.Name() + " ((?:--)?[a-z][a-z-]*)([^`|\\n]*)")
	files, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no documents in %s (%v)", top, err)
	}
	checked := 0
	for _, name := range []string{"README.md", "BENCHMARKS.md", "CONTRIBUTING.md"} {
		files = append(files, filepath.Join(top, name))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fenced, image := false, ""
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			for _, m := range shown.FindAllStringSubmatch(line, -1) {
				isCode := fenced || strings.HasPrefix(line, "    ") || strings.Contains(line, "`"+root.Name()+" "+m[1])
				if isCode && check(t, root, file, m[1], strings.Fields(m[2])) {
					checked++
				}
			}
			if m := yamlImage.FindStringSubmatch(line); m != nil {
				image = m[1]
			}
			for _, m := range yamlArgs.FindAllStringSubmatch(line, -1) {
				if (has(root, m[1]) || image == root.Name() && strings.HasPrefix(m[1], "--")) &&
					check(t, root, file, m[1], strings.Fields(strings.ReplaceAll(m[2], ",", " "))) {
					checked++
				}
			}
		}
	}
	if checked == 0 {
		t.Errorf("the documents show no command of %s", root.Name())
	}
}

func has(root *cobra.Command, name string) bool {
	found, _, err := root.Find([]string{name})
	return err == nil && found != root
}

// check looks a command and its flags up. A word that is no command is prose, unless flags follow it.
func check(t *testing.T, root *cobra.Command, file, name string, words []string) bool {
	t.Helper()
	path := []string{name}
	isFlag := strings.HasPrefix(name, "--")
	if isFlag {
		path, words = nil, append(path, words...)
	} else if len(words) > 0 && has(root, name) {
		path = append(path, words[0])
	}
	cmd, _, err := root.Find(path)
	if err != nil || cmd == root && !isFlag {
		if len(words) > 0 && strings.HasPrefix(words[0], "--") {
			t.Errorf("%s: %s has no command %s", file, root.Name(), name)
		}
		return false
	}
	for _, word := range words {
		m := longFlag.FindStringSubmatch(strings.Trim(word, "\"'[](),"))
		switch {
		case word == "--":
			return true // an app's own
		case m == nil || m[1] == "help" || m[1] == "version":
		case cmd.Flags().Lookup(m[1]) == nil:
			t.Errorf("%s: %s has no flag --%s", file, cmd.CommandPath(), m[1])
		}
	}
	return true
}
