// Bench compares lastcall with Envoy, HAProxy, nginx and, if it is there, Caddy doing the same work, one proxy at a
// time on one core, the load and the app on another.
//
//	make bench                                                     every table
//	make bench ARGS="http1 http2 --only lastcall-http,envoy --rounds 5 --duration 10s"
//	make bench ARGS="--before FILE --only lastcall-http,before-http"  this build and an older one, in turns
//
// The tables are http1, http2, latency, bodies, memory, drain and start. The proxies take turns, in each round another
// one begins, and the tables show medians. Traffic stays on loopback. With the defaults all of it takes about 25 minutes.
// The tables go to standard output, the progress to standard error.
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

	"github.com/lastcall-dev/lastcall/lab/bench/relay"
)

// bench is one run of the benchmark.
type bench struct {
	tables              []table
	subjects            []subject         // of --only
	programs            map[string]string // of subjects and apps, by name
	wrk, h2load         string
	rounds, connections int
	held, starts        int
	duration            time.Duration
	proxyCore, loadCore int

	dir string // for configurations; removed at the end
}

// What this program is called with to be one of the apps, or the relay.
const (
	appWord   = "app"
	relayWord = "relay"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == relayWord { // signals end it as they come: it holds the only thread
		fmt.Fprintln(os.Stderr, "bench:", relay.Serve(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == appWord {
		return serveApp(ctx, args[1], args[2])
	}
	b, err := parse(args)
	if err != nil {
		return err
	}
	if err := bindSelf(b.loadCore); err != nil {
		return err
	}
	return b.run(ctx)
}

func parse(args []string) (*bench, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: bench [TABLE …] [flags]\n\nTables, by default all:\n")
		for _, t := range tables {
			fmt.Fprintf(flags.Output(), "  %-8s %s\n", t.name, t.what)
		}
		fmt.Fprintf(flags.Output(), "\nFlags:\n")
		flags.PrintDefaults()
	}
	var b bench
	only := flags.String("only", "", "proxies to measure, separated by commas, of: "+strings.Join(names(subjects), ", ")+" (default all)")
	lastcall := flags.String("lastcall", "bin/lastcall", "the lastcall binary to measure")
	before := flags.String("before", "", "an older lastcall binary to measure in the same turns, as before-http and before-tcp")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each proxy has its turn")
	flags.DurationVar(&b.duration, "duration", 5*time.Second, "how long each turn lasts, in whole seconds")
	flags.IntVar(&b.connections, "connections", 64, "keep-alive connections of http1 and latency")
	flags.IntVar(&b.held, "held", 8000, "connections of memory and drain")
	flags.IntVar(&b.starts, "starts", 20, "how often each proxy is started for start")
	flags.IntVar(&b.proxyCore, "proxy-core", 0, "the core that the proxies run on")
	flags.IntVar(&b.loadCore, "load-core", 1, "the core that load and app run on")
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		i := slices.IndexFunc(tables, func(t table) bool { return t.name == args[0] })
		if i < 0 {
			return nil, fmt.Errorf("table %s: there is none; there are %s", args[0], strings.Join(tableNames(), ", "))
		}
		b.tables, args = append(b.tables, tables[i]), args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%s: tables go before the flags", flags.Arg(0))
	}
	if len(b.tables) == 0 {
		b.tables = tables
	}
	b.subjects = slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return s.before && *before == "" })
	if *only != "" {
		b.subjects = nil
		for name := range strings.SplitSeq(*only, ",") {
			i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })
			if i >= 0 && subjects[i].before && *before == "" {
				return nil, fmt.Errorf("--only %s: %s needs --before FILE", *only, name)
			}
			if i < 0 {
				return nil, fmt.Errorf("--only %s: there is no %q; there are %s", *only, name, strings.Join(names(subjects), ", "))
			}
			b.subjects = append(b.subjects, subjects[i])
		}
	}
	switch {
	case b.rounds < 1:
		return nil, fmt.Errorf("--rounds %d: at least 1 is needed", b.rounds)
	case b.duration < time.Second || b.duration%time.Second != 0:
		return nil, fmt.Errorf("--duration %s: whole seconds are needed, at least 1s", b.duration)
	case b.connections < 1 || b.connections > 4096:
		return nil, fmt.Errorf("--connections %d: 1 to 4096 are possible", b.connections)
	case b.held < 2 || b.held > 100000:
		return nil, fmt.Errorf("--held %d: 2 to 100000 are possible", b.held)
	case b.starts < 1 || b.starts > 1000:
		return nil, fmt.Errorf("--starts %d: 1 to 1000 are possible", b.starts)
	case b.proxyCore == b.loadCore || os.Getenv(bound) == "" && runtime.NumCPU() < 2:
		return nil, fmt.Errorf("two cores are needed, one for the proxy (--proxy-core %d) and one for the load (--load-core %d)", b.proxyCore, b.loadCore)
	}
	return &b, b.findPrograms(*lastcall, *before)
}

func (b *bench) run(ctx context.Context) (err error) {
	// A bound for everything that might hang.
	turns := time.Duration(b.rounds * len(b.subjects) * len(b.tables))
	ctx, cancel := context.WithTimeout(ctx, 2*turns*(3*b.duration+10*time.Second)+time.Duration(b.starts)*10*time.Second+time.Minute)
	defer cancel()
	if b.dir, err = os.MkdirTemp("", "lastcall-bench-"); err != nil {
		return fmt.Errorf("make a folder for configurations: %w", err)
	}
	defer os.RemoveAll(b.dir)
	heading := machine()
	for _, t := range b.tables {
		if err := t.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		fmt.Println()
	}
	fmt.Printf("Machine: %s\\\nVersions: %s\n", heading, versions(ctx, b))
	return nil
}
