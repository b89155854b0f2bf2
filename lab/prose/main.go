// Command prose checks the project's texts for wording that makes a reader stop: comments and string literals of Go
// files, Markdown outside code, and every line of the other text files. make lint runs it.
//
//	prose            fail where a folder has more findings than lab/prose/ratchet.txt allows
//	prose -all       list every finding, ratchet or not
//	prose -counts    count the findings per folder and per rule
//	prose -lower     write today's counts to the ratchet; refuses to raise their sum
//
// Folders and files given as arguments narrow all but -lower.
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
	all := flag.Bool("all", false, "list every finding")
	counts := flag.Bool("counts", false, "count the findings per folder and per rule")
	lower := flag.Bool("lower", false, "write today's counts to the ratchet")
	flag.Parse()
	ok, err := run(os.Stdout, *top, *all, *counts, *lower, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(out io.Writer, top string, all, counts, lower bool, narrow []string) (ok bool, err error) {
	found, err := checkTree(top)
	if err != nil {
		return false, err
	}
	if lower {
		return true, lowerRatchet(top, found)
	}
	found = slices.DeleteFunc(found, func(f finding) bool { return !within(f.file, narrow) })
	switch {
	case counts:
		printCounts(out, found)
		return true, nil
	case all:
		for _, f := range found {
			fmt.Fprintln(out, f)
		}
		return len(found) == 0, nil
	}
	allowed, err := readRatchet(top)
	if err != nil {
		return false, err
	}
	return holds(out, found, allowed), nil
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
