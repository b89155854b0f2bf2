// Bench compares lastcall with Envoy, HAProxy and nginx doing the same work, one proxy at a time on one core, the load
// and the app on another.
//
//	make bench                                            every table, into BENCHMARKS.md
//	make bench ARGS=quick                                 every table with fewer proxies and rounds, printed only
//	make bench ARGS="http1 http2 --only lastcall-http,envoy --rounds 9"
//	make bench ARGS="http1 --against FILE"                this build and another one in turns, with a verdict
//
// The proxies take turns, in each round another one begins, and the tables show medians. Traffic stays on loopback.
// Each table is printed, and written into its place in BENCHMARKS.md, as soon as it is made, if no turn failed. The
// progress goes to standard error.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	document    = "BENCHMARKS.md" // into which the tables are written
	quickFactor = 5               // how many times fewer rounds a quick run has
	openFiles   = 2*held + 2000   // of a process with a socket to the client and one to the app for each connection
)

// bench is one run of the benchmark.
type bench struct {
	tables   []*table
	subjects []subject
	args     string
	rounds   int // 0: those of the table
	quick    bool
	other    bool   // the arguments change what is measured: the tables are printed only
	files    string // a folder for configurations, and for the files of the apps; removed at the end
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := parse(os.Args[1:])
	if err == nil {
		err = bindSelf()
	}
	if err == nil {
		err = b.run(ctx)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string) (*bench, error) {
	b := &bench{args: strings.Join(args, " ")}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "Usage: bench [quick] [TABLE …] [flags]\nTables, by default all:",
			strings.Join(tableNames(), ", "))
		flags.PrintDefaults()
	}
	only := flags.String("only", "", "proxies to measure, separated by commas, of: "+strings.Join(subjectNames(), ", "))
	against := flags.String("against", "", "another lastcall binary to measure in turns with this one: prints a "+
		"verdict for each figure, at least 6 rounds (default 9)")
	flags.IntVar(&b.rounds, "rounds", 0, "how often each proxy has its turn (default: as in "+document+")")
	for ; len(args) > 0 && !strings.HasPrefix(args[0], "-"); args = args[1:] {
		i := slices.Index(tableNames(), args[0])
		switch {
		case args[0] == "quick":
			b.quick = true
		case i < 0:
			return nil, fmt.Errorf("table %s: there is none; there are %s", args[0], strings.Join(tableNames(), ", "))
		default:
			b.tables = append(b.tables, tables[i])
		}
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	b.other = b.quick || len(given) > 0
	if len(b.tables) == 0 {
		b.tables = tables
	}
	if *against != "" && !given["rounds"] {
		b.rounds = 9
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%s: tables go before the flags", flags.Arg(0))
	case given["rounds"] && b.rounds < 1:
		return nil, fmt.Errorf("--rounds %d: at least 1 is needed", b.rounds)
	case *against != "" && b.rounds < fewestPairs:
		return nil, fmt.Errorf("--against with --rounds %d: at least %d are needed to distinguish a difference "+
			"from noise", b.rounds, fewestPairs)
	case *against != "" && b.quick:
		return nil, errors.New("quick with --against: one round cannot distinguish a difference from noise")
	}
	return b, b.choose(*only, *against)
}

// choose makes the list of subjects: all, those of --only, those of a quick run, or with --against only lastcall's. It
// adds, after each subject of this build, the same one with the program of --against.
func (b *bench) choose(only, against string) error {
	wanted := subjectNames()
	switch {
	case only != "":
		wanted = strings.Split(only, ",")
	case b.quick:
		wanted = quickSubjects
	case against != "":
		wanted = []string{"lastcall-http", "lastcall-tcp"}
	}
	for _, name := range wanted {
		i := slices.Index(subjectNames(), name)
		if i < 0 {
			return fmt.Errorf("--only %s: there is no %q; there are %s", only, name, strings.Join(subjectNames(), ", "))
		}
		s := subjects[i]
		programs := []string{s.peer}
		if s.ours && against != "" {
			programs = append(programs, against)
		}
		for i, program := range programs {
			if s.ours {
				if _, err := os.Stat(program); err != nil {
					return fmt.Errorf("find lastcall: %w (`make build` makes %s)", err, lastcallPeer)
				}
				s.peer, _ = filepath.Abs(program) // it runs in a folder of its own
			}
			if i > 0 {
				s.name, s.title, s.rival = "against-"+s.name, s.title+", of --against", s.name
			}
			b.subjects = append(b.subjects, s)
		}
	}
	return nil
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.files, err = os.MkdirTemp("", "lastcall-bench-"); err != nil {
		return fmt.Errorf("make a folder for configurations: %w", err)
	}
	defer os.RemoveAll(b.files)
	if err := writeFiles(b.files); err != nil {
		return err
	}
	// Set by us, Go gives the limit to the processes that are started, too.
	limit := &syscall.Rlimit{Cur: openFiles, Max: openFiles}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, limit); err != nil {
		return fmt.Errorf("allow %d open files (`ulimit -Hn`): %w", openFiles, err)
	}
	var problems []error
	for _, t := range b.tables {
		average, _ := os.ReadFile("/proc/loadavg") // work of others explains odd numbers
		o := b.measure(ctx, t, b.turn)
		if len(o.subjects) == 0 {
			continue
		}
		var record strings.Builder
		fmt.Fprintf(&record, "%s\n\n", t.how)
		o.write(&record)
		load, _, _ := strings.Cut(string(average), " ")
		fmt.Fprintln(&record, b.sign(t, load))
		fmt.Printf("## %s\n\n%s\n", t.name, &record)
		o.writeVerdicts(os.Stdout)
		switch {
		case len(o.failed) > 0:
			problems = append(problems, fmt.Errorf("%s is not written into %s: turns failed", t.name, document))
		case b.other:
			fmt.Fprintf(os.Stderr, "%s is not written into %s: its arguments make it another table\n", t.name, document)
		default:
			problems = append(problems, fillFile(document, t.name, record.String()))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(problems...)
}

// sign has the command and time of a table, and the versions of lastcall. The document has the peers' once, by hand.
func (b *bench) sign(t *table, load string) string {
	command := "make bench ARGS=" + t.name
	if b.other {
		command = fmt.Sprintf("make bench ARGS=%q", b.args)
	}
	rounds := fmt.Sprintf("medians of %d alternating rounds", b.roundsOf(t))
	if t.measure == nil {
		rounds += " of " + loadTime.String()
	}
	line := fmt.Sprintf("`%s`, %s; %s, load %s.", command, time.Now().UTC().Format(time.DateOnly), rounds, load)
	for _, s := range b.subjects {
		if s.ours {
			output, _ := exec.Command(s.peer, "--version").Output()
			if version := fmt.Sprintf(" lastcall %s.", bytes.TrimSpace(output)); !strings.Contains(line, version) {
				line += version
			}
		}
	}
	return line
}

// roundsOf is how often each subject of the table has its turn.
func (b *bench) roundsOf(t *table) int {
	rounds := cmp.Or(b.rounds, t.rounds, 5)
	if b.quick && b.rounds == 0 {
		rounds = max(1, rounds/quickFactor)
	}
	return rounds
}

// fillFile replaces the text of one place of the file, from <!-- bench: NAME --> to <!-- /bench -->.
func fillFile(path, name, text string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the table %s: %w", name, err)
	}
	mark, end := fmt.Sprintf("<!-- bench: %s -->\n", name), "<!-- /bench -->"
	before, rest, isMarked := strings.Cut(string(document), mark)
	_, after, hasEnd := strings.Cut(rest, end)
	if !isMarked || !hasEnd {
		return fmt.Errorf("write the table %s into %s: there is no line %swith a %s after it", name, path, mark, end)
	}
	return os.WriteFile(path, []byte(before+mark+text+end+after), 0o644)
}
