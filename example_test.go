package lastcall_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/httpdrain"
)

// The three lines of a main function. On Kubernetes, TERMINATION_GRACE_PERIOD_SECONDS is the pod's
// terminationGracePeriodSeconds.
func ExampleServe() {
	server := &http.Server{Addr: ":8080", Handler: http.FileServer(http.Dir("."))}
	if _, err := lastcall.Serve(context.Background(), server); err != nil {
		log.Fatal(err)
	}
}

// Options override the environment. Here the end of a context takes the place of SIGTERM.
func ExampleServe_options() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		stop()                           // the pod is deleted while the request is in flight
		<-lastcall.Draining(r.Context()) // it takes a while
		_, _ = io.WriteString(w, "whole")
	})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		resp, err := http.Get("http://" + ln.Addr().String())
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, string(body), "close:", resp.Close)
	}()

	report, err := lastcall.Serve(ctx, &http.Server{Handler: mux},
		lastcall.WithListener(ln),
		lastcall.WithMinimumDrain(20*time.Millisecond),
		lastcall.WithQuietTime(10*time.Millisecond),
		lastcall.WithIdleGrace(10*time.Millisecond),
		lastcall.WithGracePeriod(10*time.Second),
		lastcall.WithLogger(slog.New(slog.DiscardHandler)),
	)
	<-answered
	fmt.Println(report.Verdict, err)
	// Output:
	// 200 whole close: true
	// clean <nil>
}

// A program may exit with a code of its own when requests were cut.
func ExampleServe_report() {
	report, err := lastcall.Serve(context.Background(), &http.Server{Addr: ":8080"},
		lastcall.WithTerminationMessage("/dev/termination-log")) // kubectl describe pod shows it
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range report.Open {
		log.Printf("cut: %s from %s, after %v: %s", c.Request, c.Peer, time.Duration(c.Age), c.Ending)
	}
	if report.Verdict == drain.Cut {
		os.Exit(3)
	}
}

// A program without inbound connections ends with the job in progress.
func ExampleWorker() {
	messages := make(chan string, 3)
	messages <- "one"
	messages <- "two"
	ctx, terminate := context.WithCancel(context.Background())

	w := lastcall.NewWorker("orders")
	go func() {
		for w.Do(func(job *lastcall.Job) {
			select {
			case m := <-messages:
				job.SetName(m)
				if m == "two" {
					terminate() // SIGTERM arrives while the job is in progress
				}
				time.Sleep(20 * time.Millisecond)
				fmt.Println("handled", m)
			case <-job.Receiving().Done():
				// The drain has begun: no message is taken from the queue any longer.
			}
		}) {
		}
	}()

	report, err := lastcall.Run(ctx, w, lastcall.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(report.Verdict, err)
	// Output:
	// handled one
	// handled two
	// clean <nil>
}

// An HTTP server and a worker end together, when neither is busy.
func ExampleWith() {
	ctx, terminate := context.WithCancel(context.Background())
	w := lastcall.NewWorker("orders")
	go w.Do(func(*lastcall.Job) {
		terminate()
		time.Sleep(50 * time.Millisecond)
		fmt.Println("handled")
	})

	report, err := lastcall.Serve(ctx, &http.Server{Addr: "127.0.0.1:0"},
		lastcall.With(w),
		lastcall.WithMinimumDrain(10*time.Millisecond), lastcall.WithQuietTime(0),
		lastcall.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(report.Verdict, err)
	// Output:
	// handled
	// clean <nil>
}

// Run drains servers that the program starts itself, for example two on different ports.
func ExampleRun() {
	ctx, terminate := context.WithCancel(context.Background())
	public := httpdrain.New(&http.Server{}, httpdrain.Options{Uncounted: httpdrain.IsHealthCheck})
	internal := httpdrain.New(&http.Server{}, httpdrain.Options{})
	for _, plane := range []*httpdrain.Plane{public, internal} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			if err := plane.Serve(ln); err != nil {
				log.Print(err)
			}
		}()
	}
	terminate()
	report, err := lastcall.Run(ctx, public, lastcall.With(internal),
		lastcall.WithMinimumDrain(10*time.Millisecond), lastcall.WithQuietTime(0),
		lastcall.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(report.Trigger, report.Verdict, err)
	// Output: context clean <nil>
}

// A stream of events ends when the drain begins, between two events: its client reconnects, to another pod.
func ExampleDraining() {
	ctx, terminate := context.WithCancel(context.Background())
	events := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		terminate() // the pod is deleted while the client listens
		select {
		case <-time.After(time.Hour): // the next event
		case <-lastcall.Draining(r.Context()):
		case <-r.Context().Done(): // the client has gone
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		resp, err := http.Get("http://" + ln.Addr().String())
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		fmt.Printf("%q %v\n", all, err)
	}()
	report, err := lastcall.Serve(ctx, &http.Server{Handler: http.HandlerFunc(events)},
		lastcall.WithListener(ln), lastcall.WithMinimumDrain(0), lastcall.WithQuietTime(0),
		lastcall.WithLogger(slog.New(slog.DiscardHandler)))
	<-read
	fmt.Println(report.Verdict, err)
	// Output:
	// "data: first\n\n" <nil>
	// clean <nil>
}

// A pool lives until the last request has ended, although the context of Serve ends at SIGTERM.
func ExampleWithBackground() {
	ctx, terminate := context.WithCancel(context.Background())
	pool := func(ctx context.Context) error {
		<-ctx.Done()
		fmt.Println("the pool is closed")
		return nil
	}
	w := lastcall.NewWorker("orders")
	go w.Do(func(*lastcall.Job) {
		terminate()
		time.Sleep(50 * time.Millisecond)
		fmt.Println("handled")
	})
	report, err := lastcall.Run(ctx, w, lastcall.WithBackground(pool), lastcall.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(report.Verdict, err)
	// Output:
	// handled
	// the pool is closed
	// clean <nil>
}

// Metrics are served on a port of their own until the end, and a scrape delays nothing.
func ExampleWithSideServer() {
	ctx, terminate := context.WithCancel(context.Background())
	terminate()
	metrics := &http.Server{Addr: "127.0.0.1:0", Handler: http.NotFoundHandler()}
	report, err := lastcall.Serve(ctx, &http.Server{Addr: "127.0.0.1:0"},
		lastcall.WithSideServer(metrics),
		lastcall.WithMinimumDrain(0), lastcall.WithQuietTime(0),
		lastcall.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(report.Verdict, err)
	// Output: clean <nil>
}
