// Command prose checks the project's texts for wording that makes a reader stop: comments and string literals of Go
// files, Markdown outside code, and every line of the other text files. make lint runs it.
//
//	prose            list every finding, and fail if there is one
//	prose -counts    count the findings per folder and per rule
//
// Folders and files given as arguments narrow both.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	top := flag.String("top", ".", "the checkout's top `folder`")
	counts := flag.Bool("counts", false, "count the findings per folder and per rule")
	flag.Parse()
	ok, err := run(os.Stdout, *top, *counts, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(out io.Writer, top string, counts bool, narrow []string) (ok bool, err error) {
	found, err := checkTree(top)
	if err != nil {
		return false, err
	}
	found = slices.DeleteFunc(found, func(f finding) bool { return !within(f.file, narrow) })
	if counts {
		printCounts(out, found)
		return true, nil
	}
	for _, f := range found {
		fmt.Fprintln(out, f)
	}
	if len(found) > 0 {
		fmt.Fprintln(out, "docs/writing.md explains the rules")
	}
	return len(found) == 0, nil
}

// within reports whether a file is one of the given, or in one of the given folders; without any it always is.
func within(file string, narrow []string) bool {
	return len(narrow) == 0 || slices.ContainsFunc(narrow, func(n string) bool {
		n = strings.TrimSuffix(strings.TrimPrefix(n, "./"), "/")
		return n == "." || file == n || strings.HasPrefix(file, n+"/")
	})
}

func printCounts(out io.Writer, found []finding) {
	folders, perRule := map[string]int{}, map[string]int{}
	for _, f := range found {
		folders[f.folder()]++
		perRule[f.rule.name]++
	}
	for _, table := range []map[string]int{folders, perRule} {
		names := make([]string, 0, len(table))
		for name := range table {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(table[b], table[a]), cmp.Compare(a, b)) })
		for _, name := range names {
			fmt.Fprintf(out, "%6d  %s\n", table[name], name)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "%6d  in total\n", len(found))
}
