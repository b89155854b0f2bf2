// Command reference writes the reference of the programs, from the programs and the source:
//
//	reference man FOLDER PROGRAM…      a manual page for each command
//	reference pages FOLDER PROGRAM…    a Markdown page for each program, and pages about the annotations of pods, the
//	                                   metrics and the report of a termination; in the top of the tree
//
// It reads the output of --help=all, because cobra's own generators omit the groups of flags and the variables.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) < 4 || os.Args[1] != "man" && os.Args[1] != "pages" {
		fmt.Fprintln(os.Stderr, "usage: reference man|pages FOLDER PROGRAM…")
		os.Exit(2)
	}
	if err := write(os.Args[1] == "man", os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func write(isMan bool, folder string, programs []string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	pages := map[string]string{}
	for _, program := range programs {
		commands, err := describe(program)
		if err != nil {
			return err
		}
		name := filepath.Base(program)
		for _, c := range commands {
			if isMan {
				pages[c.file()+".1"] = c.man()
			} else {
				pages[name+".md"] += c.markdown()
			}
		}
	}
	if !isMan {
		pagesOf := map[string]func() (string, error){
			"annotations.md": annotations, "metrics.md": metrics, "report.md": report,
		}
		for name, of := range pagesOf {
			text, err := of()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			pages[name] = text
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
