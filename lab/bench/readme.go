package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// summaryName is the place in README.md that repeats figures of BENCHMARKS.md.
const summaryName = "summary"

// summaryRows are the rows of README.md's table: cells of a column of a table.
var summaryRows = []struct {
	what, table, column, unit string
	others                    []string // subjects
}{
	{"HTTP/1.1 on one core", "http1", "requests/s", " requests/s", []string{"Envoy", "HAProxy, HTTP", "nginx"}},
	{"HTTP/2 on one core", "http2", "requests/s", " requests/s", []string{"Envoy", "HAProxy, HTTP", "nginx"}},
	{"memory, idle", "http1", "resident idle", "", []string{"Envoy", "HAProxy, HTTP", "nginx"}},
}

// summary makes README.md's table from the tables of BENCHMARKS.md.
func summary(benchmarks []byte) (string, error) {
	var b strings.Builder
	b.WriteString("| | lastcall | others |\n|---|---:|---|\n")
	for _, row := range summaryRows {
		ours, err := cellOf(benchmarks, row.table, "**lastcall, HTTP**", row.column)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %s | %s%s | ", row.what, ours, row.unit)
		for i, other := range row.others {
			theirs, err := cellOf(benchmarks, row.table, other, row.column)
			if err != nil {
				return "", err
			}
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s %s", strings.TrimSuffix(other, ", HTTP"), theirs)
		}
		b.WriteString(" |\n")
	}
	return b.String(), nil
}

// cellOf is a cell of the first table at a place of the document.
func cellOf(document []byte, place, subject, column string) (string, error) {
	for _, found := range marked.FindAllSubmatch(document, -1) {
		if string(found[2]) != place {
			continue
		}
		index := -1
		for line := range bytes.Lines(found[3]) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(string(line)), "|"), "|")
			for i, cell := range cells {
				if index < 0 && strings.TrimSpace(cell) == column {
					index = i
				}
			}
			if strings.TrimSpace(cells[0]) == subject && index > 0 && index < len(cells) {
				return strings.TrimSpace(cells[index]), nil
			}
		}
	}
	return "", fmt.Errorf("the table %s has no cell of %s in the column %s", place, subject, column)
}

// summarise writes README.md's table, next to the document that this run has written.
func summarise(benchmarks string) error {
	document, err := os.ReadFile(benchmarks)
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	text, err := summary(document)
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return fillFile(filepath.Join(filepath.Dir(benchmarks), "README.md"), summaryName, text)
}
