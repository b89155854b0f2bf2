package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json` (`go doc test2json`). ImportPath instead of Package stands in lines of the build.
type event struct {
	Action, Package, Test, Output string
}

// test names one test of one package. With an empty name it is the package itself.
type test struct{ pkg, name string }

// results is what became of all tests. A test that only groups others, as a table does its rows, is not counted itself.
type results struct {
	passed, failed int
	failures       []test
	skipped        []skip
}

type skip struct {
	test
	reason string
}

// read follows the events to their end and prints to out what go test would print without -v.
func read(events io.Reader, out io.Writer) (results, error) {
	said := map[test][]string{} // what tests that have not ended yet have printed
	ended := map[test]string{}  // passed, failed or skipped
	var order []test            // of ending
	reasons := map[test]string{}

	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(out, line) // go test prints some errors as they are
				continue
			}
			of := test{e.Package, e.Test}
			switch e.Action {
			case "build-output":
				fmt.Fprint(out, e.Output)
			case "output":
				if e.Test == "" {
					if e.Output != "PASS\n" {
						fmt.Fprint(out, e.Output)
					}
				} else {
					said[of] = append(said[of], e.Output)
				}
			case "pass", "fail", "skip":
				if e.Test == "" {
					if e.Action == "fail" {
						printUnended(out, e.Package, said)
					}
					break
				}
				switch e.Action {
				case "fail":
					printLines(out, said[of])
				case "skip":
					reasons[of] = reason(said[of])
				}
				delete(said, of)
				ended[of] = e.Action
				order = append(order, of)
			}
		}
		if err == io.EOF {
			return count(order, ended, reasons), nil
		}
		if err != nil {
			return count(order, ended, reasons), err
		}
	}
}

// printUnended prints the output of tests of a failed package that did not end: after a panic, a timeout, os.Exit.
func printUnended(out io.Writer, pkg string, said map[test][]string) {
	var unended []test
	for of := range said {
		if of.pkg == pkg {
			unended = append(unended, of)
		}
	}
	slices.SortFunc(unended, func(a, b test) int { return strings.Compare(a.name, b.name) })
	for _, of := range unended {
		printLines(out, said[of])
		delete(said, of)
	}
}

// printLines leaves out the marks that only -v asks for.
func printLines(out io.Writer, lines []string) {
	for _, line := range lines {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(out, line)
		}
	}
}

// reason is the output of a skipped test, without the marks around it, in one line.
func reason(lines []string) string {
	var words []string
	for _, line := range lines {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "=== ") || strings.HasPrefix(trimmed, "--- SKIP") {
			continue
		}
		words = append(words, trimmed)
	}
	return strings.Join(words, " ")
}

func count(order []test, ended map[test]string, reasons map[test]string) results {
	groups := map[test]bool{}
	for _, of := range order {
		for name := of.name; ; {
			cut := strings.LastIndexByte(name, '/')
			if cut < 0 {
				break
			}
			name = name[:cut]
			groups[test{of.pkg, name}] = true
		}
	}
	var r results
	for _, of := range order {
		// A group that failed by itself, with all its rows passed, is still a failure that must be counted.
		switch action := ended[of]; {
		case action == "skip":
			r.skipped = append(r.skipped, skip{of, reasons[of]})
		case groups[of] && !(action == "fail" && !rowFailed(of, order, ended)):
		case action == "fail":
			r.failed++
			r.failures = append(r.failures, of)
		default:
			r.passed++
		}
	}
	return r
}

func rowFailed(group test, order []test, ended map[test]string) bool {
	return slices.ContainsFunc(order, func(of test) bool {
		return of.pkg == group.pkg && strings.HasPrefix(of.name, group.name+"/") && ended[of] == "fail"
	})
}

// print ends the run: the list that must not be overlooked, and the totals on a line of their own.
func (r results) print(out io.Writer) {
	if len(r.skipped) > 0 {
		fmt.Fprintf(out, "\n%s\nSKIPPED here: %d of the tests\n", strings.Repeat("=", 80), len(r.skipped))
		for _, s := range r.skipped {
			fmt.Fprintf(out, "  %s %s\n      %s\n", s.pkg, s.name, s.reason)
		}
		fmt.Fprintln(out, strings.Repeat("=", 80))
	}
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skipped))
}
