package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ratchetFile holds how many findings each folder still has: lines of a count and a folder. Without it none are allowed.
const ratchetFile = "lab/prose/ratchet.txt"

func readRatchet(top string) (map[string]int, error) {
	allowed := map[string]int{}
	content, err := os.ReadFile(filepath.Join(top, ratchetFile))
	if errors.Is(err, fs.ErrNotExist) {
		return allowed, nil
	}
	for line := range strings.Lines(string(content)) {
		var n int
		var folder string
		if _, err := fmt.Sscan(line, &n, &folder); err != nil {
			return nil, fmt.Errorf("%s: %q: a line must be a count and a folder", ratchetFile, line)
		}
		allowed[folder] = n
	}
	return allowed, err
}

// holds reports whether no folder has more findings than allowed, and lists the findings of those that have.
func holds(out io.Writer, found []finding, allowed map[string]int) bool {
	counts := perFolder(found)
	var over []string
	for _, folder := range slices.Sorted(maps.Keys(counts)) {
		if counts[folder] > allowed[folder] {
			over = append(over, fmt.Sprintf("%s has %d findings, %d are allowed", folder, counts[folder], allowed[folder]))
		}
	}
	for _, f := range found {
		if counts[f.folder()] > allowed[f.folder()] {
			fmt.Fprintln(out, f)
		}
	}
	for _, line := range over {
		fmt.Fprintln(out, line)
	}
	if len(over) > 0 {
		fmt.Fprintln(out, "docs/writing.md explains the rules. After moving files: go run ./lab/prose -lower")
	}
	return len(over) == 0
}

func perFolder(found []finding) map[string]int {
	counts := map[string]int{}
	for _, f := range found {
		counts[f.folder()]++
	}
	return counts
}

// lowerRatchet writes today's counts, unless there are more than before; with none left it removes the file.
func lowerRatchet(top string, found []finding) error {
	allowed, err := readRatchet(top)
	if err != nil {
		return err
	}
	before := 0
	for _, n := range allowed {
		before += n
	}
	file := filepath.Join(top, ratchetFile)
	if _, err := os.Stat(file); err == nil && len(found) > before {
		return fmt.Errorf("%d findings, %d before: the ratchet only goes down", len(found), before)
	}
	if len(found) == 0 {
		return os.Remove(file)
	}
	counts := perFolder(found)
	var text strings.Builder
	for _, folder := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "%d %s\n", counts[folder], folder)
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
