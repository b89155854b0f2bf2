// Nginx measures what ways of stopping a pod without a proxy do to its clients: nginx
// from Debian before an app that dies at SIGTERM, ended by the kubelet's rules.
//
//	go run ./lab/bench/nginx -bin bin -nginx PATH
//
// Each pod has a short and a long request in flight at its SIGTERM, a pool of
// idle connections, and a client that still connects afterwards.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

var (
	bin    = flag.String("bin", "bin", "`folder` of lastcall and rehearse")
	runs   = flag.Int("runs", 50, "how many terminations of each kind, 1 to 1000")
	atOnce = flag.Int("at-once", 10, "how many at a time, 1 to 100")
	only   = flag.String("only", "", "`name` of the one way to measure")
)

func main() {
	flag.Parse()
	if *runs < 1 || *runs > 1000 || *atOnce < 1 || *atOnce > 100 {
		fmt.Fprintln(os.Stderr, "nginx: -runs takes 1 to 1000, -at-once 1 to 100")
		os.Exit(2)
	}
	if err := measure(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "nginx:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context) error {
	nginx, err := peers.Find("nginx")
	if err != nil {
		return err
	}
	n := node.New()
	defer n.Close()
	th := &theatre{node: n, ports: &node.Ports{}, nginx: nginx}
	fmt.Printf("| way | nginx gets | runs | %v in flight lost | %v in flight lost | %v, asked %v late: lost | pod gone after, median | max |\n|---|---|---|---|---|---|---|---|\n",
		short, long, short, late)
	for _, w := range ways {
		if *only != "" && w.name != *only {
			continue
		}
		for _, s := range signals {
			results, err := th.playAll(ctx, w, s)
			if err != nil {
				return fmt.Errorf("%s, %v: %w", w.name, s.name, err)
			}
			printRow(w, s, results)
		}
	}
	return nil
}

// playAll plays a way runs times.
func (th *theatre) playAll(ctx context.Context, w way, s stopSignal) ([]result, error) {
	var mu sync.Mutex // guards results and errs
	var results []result
	var errs []error
	var all sync.WaitGroup
	slots := make(chan struct{}, *atOnce)
	for range *runs {
		slots <- struct{}{}
		all.Go(func() {
			r, err := th.play(ctx, w, s)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
}

func printRow(w way, s stopSignal, results []result) {
	var lost [asked]int
	var gone []time.Duration
	var why error
	for _, r := range results {
		for i, err := range r.lost {
			if err != nil {
				lost[i]++
				why = err
			}
		}
		gone = append(gone, r.gone)
	}
	slices.Sort(gone)
	fmt.Printf("| %s | %s | %d | %d | %d | %d | %.1f s | %.1f s |\n", w.words, s.name, len(results),
		lost[0], lost[1], lost[2], gone[len(gone)/2].Seconds(), gone[len(gone)-1].Seconds())
	if why != nil {
		fmt.Fprintf(os.Stderr, "%s, %s: for example: %v\n", w.name, s.name, why)
	}
}
