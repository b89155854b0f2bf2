// Exit measures how long lastcall's sidecar stays after it is no longer needed:
// from the last byte of the last answer, from the end of the minimum drain of an
// idle pod, and with clients that hold idle connections.
//
//	go run ./lab/bench/exit -lastcall bin/lastcall
//
// With -proxy envoy the data plane is a real Envoy.
//
//	go run ./lab/bench/exit -lastcall bin/lastcall -proxy envoy -envoy PATH
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

var (
	binary   = flag.String("lastcall", "bin/lastcall", "the `program` to measure")
	proxy    = flag.String("proxy", "pipe", "what carries the traffic: pipe or envoy")
	envoy    = flag.String("envoy", "envoy", "`program` to start as Envoy")
	runs     = flag.Int("runs", 50, "how many terminations of each kind, 1 to 1000")
	longRuns = flag.Int("long-runs", 3, "how many of those that take the whole grace period, 0 to 100")
	atOnce   = flag.Int("at-once", 4, "how many at a time")
)

func main() {
	flag.Parse()
	if *runs < 1 || *runs > 1000 || *longRuns < 0 || *longRuns > 100 || *atOnce < 1 || *proxy != "pipe" && *proxy != "envoy" {
		fmt.Fprintln(os.Stderr, "exit: -runs takes 1 to 1000, -long-runs 0 to 100, -at-once 1 or more, -proxy pipe or envoy")
		os.Exit(2)
	}
	app, err := startApp()
	if err == nil {
		err = table(app)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "exit:", err)
		os.Exit(1)
	}
}

// startApp answers /N after N milliseconds, HTTP/1.1 and HTTP/2.
func startApp() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Path[1:])
		time.Sleep(time.Duration(n) * time.Millisecond)
		_, _ = io.WriteString(w, "done")
	})}
	go func() { _ = server.Serve(ln) }()
	return ln.Addr().String(), nil
}

func table(app string) error {
	fmt.Printf("| what | runs | min | median | p90 | max |\n|---|---|---|---|---|---|\n")
	for _, s := range scenes {
		n := *runs
		if s.long {
			n = *longRuns
		}
		if n == 0 {
			continue
		}
		took, lost, err := measure(app, s, n)
		if err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		slices.Sort(took)
		at := func(q float64) string { return ms(took[int(q*float64(len(took)-1))]) }
		fmt.Printf("| %s | %d | %s | **%s** | %s | %s |\n", s.what, n, at(0), at(0.5), at(0.9), at(1))
		if *proxy == "envoy" && s.asks {
			fmt.Printf("| the last request's line in the access log | %d | written in %d of %d | | | |\n", n, n-lost, n)
		}
	}
	return nil
}

func ms(d time.Duration) string {
	if d > 2*time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// measure runs one kind of termination again and again. lost are the runs whose
// last request has no line in the access log.
func measure(app string, s scene, n int) (took []time.Duration, lost int, err error) {
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		slots = make(chan struct{}, *atOnce)
	)
	for range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			d, logged, oneErr := once(app, s)
			mu.Lock()
			defer mu.Unlock()
			took, err = append(took, d), errors.Join(err, oneErr)
			if !logged {
				lost++
			}
		})
	}
	group.Wait()
	return took, lost, err
}
