// Command prose checks the project's texts for wording that makes a reader stop: comments and string literals of Go
// files, Markdown outside code, and every line of the other text files. make lint runs it.
//
//	prose [FOLDER…|FILE…]    list every finding, and fail if there is one
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	top := flag.String("top", ".", "the checkout's top `folder`")
	flag.Parse()
	ok, err := run(os.Stdout, *top, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(out io.Writer, top string, narrow []string) (ok bool, err error) {
	found, err := checkTree(top)
	if err != nil {
		return false, err
	}
	found = slices.DeleteFunc(found, func(f finding) bool { return !within(f.file, narrow) })
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
