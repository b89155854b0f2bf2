package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

// reportFlags name the files that a rehearsal's result is written to, in addition to standard output.
type reportFlags struct{ junit, html, github string }

func (f *reportFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.html, "html", "", "`file` for the result as one HTML page: each connection and request over the phases of the pod's end")
	flags.StringVar(&f.junit, "junit", "", "`file` for the result as JUnit's XML: a test case for each strategy")
	flags.StringVar(&f.github, "github", "", "`file` for GitHub's annotations, one for each kind of loss; - for standard error")
}

// check refuses files that cannot be written after the rehearsal.
func (f *reportFlags) check() error {
	for _, file := range []string{f.html, f.junit, f.github} {
		if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
			return cli.UsageError{Err: fmt.Errorf("cannot write %s: %s is not a folder", file, filepath.Dir(file))}
		}
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			return cli.UsageError{Err: fmt.Errorf("cannot write %s: it is a folder", file)}
		}
	}
	return nil
}

// write writes the reports that are named.
func (f *reportFlags) write(r *outcome.Result) error {
	for _, report := range []struct {
		file  string
		write func(io.Writer) error
	}{{f.html, r.WriteHTML}, {f.junit, r.WriteJUnit}, {f.github, r.WriteGitHub}} {
		if report.file == "" {
			continue
		}
		var b bytes.Buffer
		if err := report.write(&b); err != nil {
			return err
		}
		if report.file == "-" {
			if _, err := os.Stderr.Write(b.Bytes()); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(report.file, b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write a report of the rehearsal: %w", err)
		}
	}
	return nil
}
