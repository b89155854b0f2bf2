// Bench measures lastcall beside Envoy, HAProxy and nginx doing the same work: HTTP/1.1 with keep-alive connections,
// small responses, one proxy at a time on one core, the load (wrk) and the app (nginx) on another.
//
//	make bench
//	make bench ARGS="--only lastcall-http,envoy --rounds 5 --duration 10s"
//
// The proxies take turns, in each round another one begins, and the table shows medians. Traffic stays on loopback. It
// takes about rounds × proxies × (duration + 1.5 s): with the defaults under three minutes. The table goes to standard output, the
// progress to standard error.
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

	"github.com/lastcall-dev/lastcall/internal/peers"
)

// bench is one run of the benchmark.
type bench struct {
	subjects            []subject
	programs            map[string]string // of subjects, by name
	wrk                 string
	rounds, connections int
	duration            time.Duration
	proxyCore, loadCore int

	dir string // for configurations; removed at the end
	app *process
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*bench, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var b bench
	only := flags.String("only", "", "proxies to measure, separated by commas, of: "+strings.Join(names(subjects), ", ")+" (default all)")
	lastcall := flags.String("lastcall", "bin/lastcall", "the lastcall binary to measure")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each proxy has its turn")
	flags.DurationVar(&b.duration, "duration", 5*time.Second, "how long each turn lasts, in whole seconds")
	flags.IntVar(&b.connections, "connections", 64, "keep-alive connections")
	flags.IntVar(&b.proxyCore, "proxy-core", 0, "the core that the proxies run on")
	flags.IntVar(&b.loadCore, "load-core", 1, "the core that load and app run on")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	b.subjects = subjects
	if *only != "" {
		b.subjects = nil
		for name := range strings.SplitSeq(*only, ",") {
			i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })
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
	case b.proxyCore == b.loadCore || runtime.NumCPU() < 2:
		return nil, fmt.Errorf("two cores are needed, one for the proxy (--proxy-core %d) and one for the load (--load-core %d)", b.proxyCore, b.loadCore)
	}
	return &b, b.findPrograms(*lastcall)
}

func names(subjects []subject) []string {
	var all []string
	for _, s := range subjects {
		all = append(all, s.name)
	}
	return all
}

// findPrograms says at once which program is missing, not after a minute.
func (b *bench) findPrograms(lastcall string) (err error) {
	b.programs = map[string]string{}
	for _, s := range append([]subject{backend}, b.subjects...) {
		if b.programs[s.name], err = s.program(lastcall); err != nil {
			return err
		}
	}
	if b.wrk, err = peers.Find("wrk"); err != nil {
		return err
	}
	_, err = peers.Find("taskset")
	return err
}

func (b *bench) run(ctx context.Context) (err error) {
	// A bound for everything that might hang: twice what it should take, and a quarter of a minute for start-ups.
	turns := time.Duration(b.rounds * len(b.subjects))
	ctx, cancel := context.WithTimeout(ctx, 2*turns*(b.duration+2*time.Second)+15*time.Second)
	defer cancel()
	if b.dir, err = os.MkdirTemp("", "lastcall-bench-"); err != nil {
		return fmt.Errorf("make a folder for configurations: %w", err)
	}
	defer os.RemoveAll(b.dir)
	if b.app, err = start(ctx, backend, b.programs[backend.name], b.loadCore, place{Dir: b.dir}); err != nil {
		return err
	}
	defer b.app.stop()

	heading := machine()
	samples := map[string][]sample{}
	for round := range b.rounds {
		for i := range b.subjects {
			s := b.subjects[(round+i)%len(b.subjects)]
			result, err := b.measure(ctx, s)
			if err != nil {
				return err
			}
			samples[s.name] = append(samples[s.name], result)
			fmt.Fprintf(os.Stderr, "round %d of %d: %-14s %8.0f requests/s, p99 %s\n", round+1, b.rounds, s.name, result.perSecond(), milliseconds(result.p99))
		}
	}
	fmt.Printf("HTTP/1.1, %d keep-alive connections, medians of %d rounds of %s. Each proxy on one core; load and app share another.\n\n",
		b.connections, b.rounds, b.duration)
	printTable(os.Stdout, b.subjects, samples)
	fmt.Println()
	printRatios(os.Stdout, samples)
	printCaution(os.Stdout, b.subjects, samples)
	fmt.Printf("\nMachine: %s\\\nVersions: %s\n", heading, versions(ctx, b))
	return nil
}
