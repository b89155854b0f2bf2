// Bench compares lastcall with Envoy, HAProxy, nginx and other proxies doing the same work, one proxy at a time on one
// core, the load and the app on another.
//
//	make bench                                            every table, into BENCHMARKS.md
//	make bench ARGS=quick                                 every table in under 3 minutes, printed only
//	make bench ARGS="http1 http2 --only lastcall-http,envoy --rounds 5 --duration 10s"
//	make bench ARGS="http1 --against FILE"                this build and another one in turns, with a verdict
//
// The proxies take turns, in each round another one begins, and the tables show medians. Traffic stays on loopback.
// Each table is printed, and written into its place in BENCHMARKS.md, as soon as it is made, if it was measured in
// full. The progress goes to standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is one run of the benchmark.
type bench struct {
	tables       []*table
	subjects     []subject           // of --only
	programs     map[string]string   // of subjects, apps and tools, by name
	left         map[*table][]string // subjects that are missing
	given        map[string]string   // flags
	args         string
	rounds, held int
	duration     time.Duration
	quick        bool
	against      string

	dir string // for configurations; removed at the end
}

const quickWord = "quick"

const (
	document    = "BENCHMARKS.md" // into which the tables are written
	connections = 64              // with keep-alive, of http1

	proxyCore, loadCore = 0, 1 // which the proxies, and the load and the app run on
)

// quickFactor is how many times fewer rounds a quick run has.
const quickFactor = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	b, err := parse(args)
	if err != nil {
		return err
	}
	if err := bindSelf(); err != nil {
		return err
	}
	return b.run(ctx)
}

func parse(args []string) (*bench, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: bench [quick] [TABLE …] [flags]\n\nTables, by default all:\n")
		for _, t := range tables {
			fmt.Fprintf(flags.Output(), "  %-8s %s\n", t.name, t.what)
		}
		fmt.Fprintf(flags.Output(), "\nFlags:\n")
		flags.PrintDefaults()
	}
	b := &bench{args: strings.Join(args, " "), given: map[string]string{}}
	only := flags.String("only", "",
		"proxies to measure, separated by commas, of: "+strings.Join(names(subjects), ", ")+" (default all)")
	lastcall := flags.String("lastcall", "bin/lastcall", "the lastcall binary to measure")
	flags.StringVar(&b.against, "against", "",
		"another lastcall binary to measure in turns with this one: "+
			"prints a verdict for each figure, at least 6 rounds (default 9)")
	flags.IntVar(&b.rounds, "rounds", 5, "how often each proxy has its turn; some tables have their own default")
	flags.DurationVar(&b.duration, "duration", time.Second,
		"how long each load lasts, in whole seconds")
	flags.IntVar(&b.held, "held", 8000, "connections of memory")
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		i := slices.IndexFunc(tables, func(t *table) bool { return t.name == args[0] })
		switch {
		case args[0] == quickWord:
			b.quick = true
		case i < 0:
			return nil, fmt.Errorf("table %s: there is none; there are %s", args[0], strings.Join(tableNames(), ", "))
		default:
			b.tables = append(b.tables, tables[i])
		}
		args = args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%s: tables go before the flags", flags.Arg(0))
	}
	flags.Visit(func(f *flag.Flag) { b.given[f.Name] = f.Value.String() })
	if len(b.tables) == 0 {
		b.tables = tables
	}
	if b.quick && b.given["held"] == "" {
		b.held = 1000
	}
	if b.against != "" && b.given["rounds"] == "" {
		b.rounds, b.given["rounds"] = 9, "9"
	}
	if err := b.choose(*only); err != nil {
		return nil, err
	}
	switch {
	case b.rounds < 1:
		return nil, fmt.Errorf("--rounds %d: at least 1 is needed", b.rounds)
	case b.against != "" && b.rounds < fewestPairs:
		return nil, fmt.Errorf("--against with --rounds %d: at least %d are needed to distinguish a difference from noise",
			b.rounds, fewestPairs)
	case b.against != "" && b.quick:
		return nil, errors.New("quick with --against: one round cannot distinguish a difference from noise; " +
			"name the tables and --duration 1s instead")
	case b.duration < time.Second || b.duration%time.Second != 0:
		return nil, fmt.Errorf("--duration %s: whole seconds are needed, at least 1s", b.duration)
	case b.held < 2 || b.held > 100000:
		return nil, fmt.Errorf("--held %d: 2 to 100000 are possible", b.held)
	case os.Getenv(bound) == "" && runtime.NumCPU() < 2:
		return nil, errors.New("two cores are needed, one for proxies, one for the load")
	}
	return b, b.findPrograms(*lastcall)
}

// choose makes the list of subjects: all, or those of --only. With --against it is lastcall's, each with its rival.
func (b *bench) choose(only string) error {
	b.subjects = slices.Clone(subjects)
	if b.against != "" && only == "" {
		b.subjects = slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return !s.ours })
	}
	if only != "" {
		b.subjects = nil
		for name := range strings.SplitSeq(only, ",") {
			i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })
			if i < 0 {
				return fmt.Errorf("--only %s: there is no %q; there are %s", only, name, strings.Join(names(subjects), ", "))
			}
			b.subjects = append(b.subjects, subjects[i])
		}
	}
	if b.against != "" {
		b.subjects = withRivals(b.subjects)
	}
	return nil
}

// whyNotWritten is why a table is printed only; empty if it may be written.
func (b *bench) whyNotWritten(o *outcome) string {
	for _, name := range []string{"only", "against", "held", "rounds", "duration"} {
		if b.given[name] != "" {
			return "--" + name + " makes it another table"
		}
	}
	switch {
	case b.quick:
		return "a quick run"
	case !o.complete:
		return "it was interrupted"
	case len(o.left) > 0:
		return "peers are missing (`make peers`)"
	}
	return ""
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "lastcall-bench-"); err != nil {
		return fmt.Errorf("make a folder for configurations: %w", err)
	}
	defer os.RemoveAll(b.dir)
	fmt.Printf("%s\n\n", machine())
	var problems []error
	for _, t := range b.tables {
		settings := b.with(t)
		if len(settings.of(t)) == 0 {
			continue
		}
		before := firstMatch("/proc/loadavg", `^(\S+)`) // work of others explains odd numbers
		o, err := settings.measure(ctx, t)
		var record, ratios strings.Builder // for the document; printed after it
		fmt.Fprintf(&record, "%s\n\n", t.how(settings))
		o.write(&record)
		fmt.Fprintf(&record, "%s %s.\n", settings.sign(o, before), settings.version(context.WithoutCancel(ctx), o))
		for _, kase := range o.cases {
			o.writeRatios(&ratios, kase)
		}
		o.writeVerdicts(&ratios)
		fmt.Printf("## %s\n\n%s\n%s", t.name, &record, &ratios)
		if err == nil && o.failedOurs {
			err = errors.New("lastcall failed")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", t.name, err))
		}
		if why := b.whyNotWritten(o); why != "" {
			fmt.Fprintf(os.Stderr, "%s is not written into %s: %s\n", t.name, document, why)
		} else if err := fillFile(document, o.name, record.String()); err != nil {
			problems = append(problems, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(problems...)
}
