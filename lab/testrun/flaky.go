package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// flakyOptions are those of `testrun flaky`: every package many times, first on the machine as it is, then next to busy
// loops, each time in a process of its own.
type flakyOptions struct {
	times, load int
	timeout     time.Duration // of one run of a package
	build       []string      // of go test -c, such as -race
	pkgs        []string
	convert     string // the path of test2json
}

func parseFlaky(args []string) (o flakyOptions, err error) {
	flags := flag.NewFlagSet("testrun flaky", flag.ContinueOnError)
	flags.IntVar(&o.times, "times", 20, "how often each package runs, without load and again with it")
	flags.IntVar(&o.load, "load", 20, "how many busy loops run at the same time; 0: none")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "of one run of a package")
	race := flags.Bool("race", false, "with the race detector")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *race {
		o.build = append(o.build, "-race")
	}
	if o.times < 1 || o.load < 0 || o.timeout <= 0 {
		return o, errors.New("-times must be 1 or more, -load 0 or more, -timeout longer than 0s")
	}
	if o.pkgs = flags.Args(); len(o.pkgs) == 0 {
		o.pkgs = []string{"./..."}
	}
	return o, nil
}

// flaw is a test that has failed, and how often.
type flaw struct {
	test
	load   int
	failed int
	said   string // by the first failure
}

// flaky runs the tests and reports whether none has failed.
func flaky(ctx context.Context, o flakyOptions, out io.Writer) (bool, error) {
	pkgs, err := packages(ctx, o.pkgs)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "flaky-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if o.convert, err = converter(ctx); err != nil {
		return false, err
	}
	var flaws []*flaw
	for _, load := range loads(o.load) {
		for i, p := range pkgs {
			binary := filepath.Join(dir, fmt.Sprint(i))
			if err := build(ctx, binary, p, o.build); err != nil {
				return false, err
			}
			if _, err := os.Stat(binary); err != nil {
				continue // there are no tests
			}
			found, err := repeat(ctx, binary, p, load, o)
			if err != nil {
				return false, err
			}
			word := "ok  "
			if len(found) > 0 {
				word = "FAIL"
			}
			fmt.Fprintf(out, "%s\t%s\t%d times, load %d\n", word, p.path, o.times, load)
			flaws = append(flaws, found...)
		}
	}
	for _, f := range flaws {
		fmt.Fprintf(out, "\nFAIL: %s %s: %d of %d times at load %d; the first:\n%s", f.pkg, cmp.Or(f.name, "(the package)"), f.failed, o.times, f.load, f.said)
	}
	fmt.Fprintf(out, "\n%d packages, %d times each at loads of %v: %d tests have failed\n", len(pkgs), o.times, loads(o.load), len(flaws))
	return len(flaws) == 0, nil
}

func loads(load int) []int {
	if load == 0 {
		return []int{0}
	}
	return []int{0, load}
}

// aPackage is one as go list names it.
type aPackage struct{ path, dir string }

func packages(ctx context.Context, patterns []string) (out []aPackage, err error) {
	text, err := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{.ImportPath}}\t{{.Dir}}"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		out = append(out, aPackage{path, dir})
	}
	return out, nil
}

// converter is test2json's path: go itself would take longer to start than many a test next to busy loops.
func converter(ctx context.Context) (string, error) {
	path, err := exec.CommandContext(ctx, "go", "tool", "-n", "test2json").Output()
	if err != nil {
		return "", fmt.Errorf("find test2json: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
}

func build(ctx context.Context, binary string, p aPackage, flags []string) error {
	args := append([]string{"test", "-c", "-o", binary}, flags...)
	if text, err := exec.CommandContext(ctx, "go", append(args, p.path)...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", p.path, err, text)
	}
	return nil
}

// repeat runs one package's tests again and again next to busy loops, which stop by themselves should this process die.
func repeat(ctx context.Context, binary string, p aPackage, load int, o flakyOptions) ([]*flaw, error) {
	busy, idle := context.WithCancel(ctx)
	var hogs []*exec.Cmd
	defer func() {
		idle()
		for _, hog := range hogs {
			_ = hog.Wait()
		}
	}()
	for range load {
		hog := exec.CommandContext(busy, "sh", "-c", "while :; do :; done")
		hog.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := hog.Start(); err != nil {
			return nil, fmt.Errorf("start a busy loop: %w", err)
		}
		hogs = append(hogs, hog)
	}
	var flaws []*flaw
	for range o.times {
		run := exec.CommandContext(ctx, o.convert, "-p", p.path, binary, "-test.v=test2json", "-test.timeout="+o.timeout.String())
		run.Dir = p.dir
		var said bytes.Buffer
		events, runErr := run.Output()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r, err := read(bytes.NewReader(events), &said)
		if err != nil {
			return nil, err
		}
		if runErr != nil && len(r.failures) == 0 { // a panic, a leak, a time-out
			r.failures = []test{{pkg: p.path}}
		}
		for _, name := range r.failures {
			i := slices.IndexFunc(flaws, func(f *flaw) bool { return f.test == name })
			if i < 0 {
				flaws, i = append(flaws, &flaw{test: name, load: load, said: said.String()}), len(flaws)
			}
			flaws[i].failed++
		}
	}
	return flaws, nil
}
