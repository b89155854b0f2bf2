// Restart measures what a hot restart of lastcall run costs its clients: a fixed rate of requests
// on kept-alive and fresh connections, while hot restarts follow one another.
//
//	go run ./lab/bench/restart -lastcall bin/lastcall
//
// It exits with 1 when a request was lost, or a restart failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/load"
)

var (
	binary   = flag.String("lastcall", "bin/lastcall", "the `program` to restart")
	restarts = flag.Int("restarts", 20, "how many hot restarts, 1 to 200")
	rate     = flag.Int("rate", 5000, "requests a second, 1 to 50000")
	keepers  = flag.Int("connections", 64, "kept-alive connections, 1 to 1000")
	fresh    = flag.Int("fresh", 10, "one in so many requests comes on a connection of its own; 0: none")
	minimum  = flag.Duration("minimum-drain", 5*time.Second, "MINIMUM_DRAIN_DURATION")
	app      = flag.Int("app", 0, "be the app on this `port`; for the program's own use")
)

func main() {
	flag.Parse()
	if *app != 0 {
		serve(*app)
		return
	}
	if *restarts < 1 || *restarts > 200 || *rate < 1 || *rate > 50000 || *keepers < 1 || *keepers > 1000 || *fresh < 0 || *minimum < 0 {
		fmt.Fprintln(os.Stderr, "restart: -restarts takes 1 to 200, -rate 1 to 50000, -connections 1 to 1000, -fresh 0 or more, -minimum-drain 0s or more")
		os.Exit(2)
	}
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
		os.Exit(1)
	}
}

// serve is the app: it answers, and ends at once at SIGTERM.
func serve(port int) {
	err := http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", port), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "done\n")
	}))
	fmt.Fprintln(os.Stderr, "restart: app:", err)
	os.Exit(1)
}

func measure() error {
	s, err := start()
	if err != nil {
		return err
	}
	defer s.end()

	ctx, cancel := context.WithCancel(context.Background())
	loaded := make(chan load.Result)
	go func() {
		loaded <- load.Run(ctx, load.Options{Address: s.address, Rate: *rate, Keepers: *keepers, Fresh: *fresh})
	}()
	var took []time.Duration
	for range *restarts {
		// The one before the last must have drained: this is part of the measurement.
		before := s.serving
		if err = s.awaitGone(s.predecessor); err != nil {
			break
		}
		began := time.Now()
		if err = s.restart(); err != nil {
			break
		}
		took = append(took, time.Since(began))
		s.predecessor = before
	}
	if err == nil {
		err = s.awaitGone(s.predecessor)
	}
	cancel()
	result := <-loaded
	print(result, took)
	switch {
	case err != nil:
		return err
	case result.Failed() > 0:
		return fmt.Errorf("%d requests were lost", result.Failed())
	}
	return nil
}

func print(r load.Result, took []time.Duration) {
	slices.Sort(took)
	if len(took) == 0 {
		took = []time.Duration{0}
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
	fmt.Printf("| what | value |\n|---|---|\n")
	for _, row := range [][2]any{
		{"hot restarts", len(took)},
		{"until the successor serves, median", ms(took[len(took)/2])},
		{"until the successor serves, max", ms(took[len(took)-1])},
		{"requests", r.Requests},
		{"of them on fresh connections", r.Fresh},
		{"requests a second", fmt.Sprintf("%.0f", float64(r.Requests)/r.Took.Seconds())},
		{"kept-alive connections closed in an orderly way", r.Reconnects},
		{"failed", r.Failed()},
		{"of them resets", r.Failures["reset"]},
		{"latency, median", ms(r.Percentile(50))},
		{"latency, p99", ms(r.Percentile(99))},
		{"latency, max", ms(r.Percentile(100))},
	} {
		fmt.Printf("| %v | %v |\n", row[0], row[1])
	}
	for kind, n := range r.Failures {
		fmt.Printf("\n%d × %s", n, kind)
	}
}
