package main

import (
	"os"
	"slices"
	"testing"
)

// README.md has the figures of BENCHMARKS.md.
func TestReadmeHasTheFiguresOfBenchmarks(t *testing.T) {
	benchmarks, err := os.ReadFile("../../BENCHMARKS.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := summary(benchmarks)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range marked.FindAllSubmatch(readme, -1) {
		if string(found[2]) == summaryName && string(found[3]) == want {
			return
		}
	}
	t.Errorf("README.md has other figures between <!-- bench: %s --> and <!-- /bench --> than\n%s", summaryName, want)
}

func TestSummaryNamesAMissingCell(t *testing.T) {
	const text = "<!-- bench: http1 -->\n| through | requests/s |\n|---|---:|\n| Envoy | 1 |\n<!-- /bench -->\n"
	if cell, err := cellOf([]byte(text), "http1", "Envoy", "requests/s"); err != nil || cell != "1" {
		t.Errorf("%q, %v", cell, err)
	}
	if _, err := summary([]byte(text)); err == nil || err.Error() != "the table http1 has no cell of **lastcall, HTTP** in the column requests/s" {
		t.Error(err)
	}
}

// A quick run leaves out other proxies, but never lastcall.
func TestQuickHasOurs(t *testing.T) {
	isOurs := func(name string) bool {
		return slices.ContainsFunc(subjects, func(s subject) bool { return s.name == name && s.ours })
	}
	for _, table := range tables {
		quick := table.quick
		if quick == nil {
			quick = quickSubjects
		}
		if len(quick) == 0 {
			continue // the whole table is left out, and --help lists it
		}
		if slices.ContainsFunc(table.subjects, isOurs) && !slices.ContainsFunc(quick, func(name string) bool { return isOurs(name) && slices.Contains(table.subjects, name) }) {
			t.Errorf("a quick run of %s has no row of lastcall", table.name)
		}
	}
}
