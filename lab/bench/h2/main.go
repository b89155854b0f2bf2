// H2 compares lastcall with Envoy and HAProxy with HTTP/2 by prior knowledge:
// h2load with 16 connections of 32 streams, one proxy at a time on one core, the
// load and the app on another.
//
//	go run ./lab/bench/h2 -lastcall bin/lastcall
//
// The proxies take turns, in each round another one begins; the table has medians.
// Every request must succeed. It takes about rounds × proxies × (duration + 2 s).
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

var (
	lastcall = flag.String("lastcall", "bin/lastcall", "the `program` to measure")
	only     = flag.String("only", "direct,lastcall,envoy,haproxy", "what to measure, separated by commas")
	rounds   = flag.Int("rounds", 3, "how often each has its turn, 1 to 50")
	duration = flag.Int("duration", 3, "how long a turn lasts, 1 to 60 `seconds`")
	core     = flag.Int("proxy-core", 0, "the core that the proxies run on")
	loadCore = flag.Int("load-core", 1, "the core that load and app run on")
	app      = flag.String("app", "", "be the app at this `address`; for the program's own use")
)

func main() {
	flag.Parse()
	if *app != "" {
		fail(serveApp(*app))
	}
	if *rounds < 1 || *rounds > 50 || *duration < 1 || *duration > 60 || *core == *loadCore || runtime.NumCPU() < 2 {
		fmt.Fprintln(os.Stderr, "h2: -rounds takes 1 to 50, -duration 1 to 60, and two cores are needed that differ")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "h2:", err)
	os.Exit(1)
}

// sample is one turn.
type sample struct {
	perSecond float64
	cpu       time.Duration // of the proxy for a request
	share     float64       // of its core, 0 to 1
}

func measure(ctx context.Context) error {
	h2load, err := peers.Find("h2load")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lastcall-bench-h2-")
	if err != nil {
		return fmt.Errorf("make a folder for configurations: %w", err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which is the app too: %w", err)
	}
	backend, err := freePort()
	if err != nil {
		return err
	}
	behind, err := start(ctx, *loadCore, backend, self, "-app", fmt.Sprintf("127.0.0.1:%d", backend))
	if err != nil {
		return err
	}
	defer behind.stop()

	names := strings.Split(*only, ",")
	samples := map[string][]sample{}
	for round := range *rounds {
		for i := range names {
			name := names[(round+i)%len(names)]
			s, err := turn(ctx, h2load, dir, name, backend)
			if err != nil {
				return fmt.Errorf("measure %s: %w", name, err)
			}
			samples[name] = append(samples[name], s)
			fmt.Fprintf(os.Stderr, "round %d of %d: %-9s %8.0f requests/s, %.2f µs of processor time for each\n", round+1, *rounds, name, s.perSecond, s.cpu.Seconds()*1e6)
		}
	}
	fmt.Printf("HTTP/2, 16 connections of 32 streams, medians of %d rounds of %d s. Each proxy on one core; load and app share another.\n\n", *rounds, *duration)
	fmt.Println("| proxy | requests/s | compared with Envoy | CPU per request | compared with Envoy | of its core |\n|---|---|---|---|---|---|")
	rate := func(s sample) float64 { return s.perSecond }
	cost := func(s sample) float64 { return s.cpu.Seconds() }
	for _, name := range names {
		of := samples[name]
		beside := func(of, envoy float64) string {
			if of == 0 || envoy == 0 { // no Envoy, or no proxy
				return ""
			}
			return fmt.Sprintf("%.2f", of/envoy)
		}
		envoy := samples["envoy"]
		fmt.Printf("| %s | %.0f | %s | %.2f µs | %s | %.0f %% |\n", name, median(of, rate), beside(median(of, rate), median(envoy, rate)),
			median(of, cost)*1e6, beside(median(envoy, cost), median(of, cost)), 100*median(of, func(s sample) float64 { return s.share }))
	}
	return nil
}

func median[T any, N cmp.Ordered](of []T, what func(T) N) (m N) {
	values := make([]N, len(of))
	for i := range of {
		values[i] = what(of[i])
	}
	if slices.Sort(values); len(values) > 0 {
		m = values[len(values)/2]
	}
	return m
}

// turn starts the proxy called name, loads it, and ends it.
func turn(ctx context.Context, h2load, dir, name string, backend int) (s sample, err error) {
	port := backend
	var proxy *process
	if name != "direct" {
		if port, err = freePort(); err != nil {
			return s, err
		}
		words, err := command(name, dir, port, backend)
		if err != nil {
			return s, err
		}
		if proxy, err = start(ctx, *core, port, words[0], words[1:]...); err != nil {
			return s, err
		}
		defer proxy.stop()
	}
	_, _ = load(ctx, h2load, port, 1) // fills pools; what is wrong shows with the measurement
	before := proxy.cpu()
	began := time.Now()
	requests, err := load(ctx, h2load, port, *duration)
	if err != nil {
		return s, err
	}
	took := time.Since(began)
	used := proxy.cpu() - before
	return sample{float64(requests) / took.Seconds(), used / time.Duration(requests), used.Seconds() / took.Seconds()}, nil
}

// write puts a configuration into the folder.
func write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write a configuration: %w", err)
	}
	return path, nil
}
