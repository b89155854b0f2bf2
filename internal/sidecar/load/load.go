// Package load makes HTTP/1.1 requests at a fixed rate, on kept-alive and on fresh
// connections, and records the result of each. It retries nothing: a client
// library's retries would hide the losses that are measured.
package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Options of a load.
type Options struct {
	Address string // host:port
	Rate    int    // requests a second
	Keepers int    // connections that are kept alive
	Fresh   int    // one in so many requests comes on a connection of its own; 0: none

	// Timeout of one request; zero is 10 s.
	Timeout time.Duration
}

// Result is what became of the requests.
type Result struct {
	Requests   int
	Fresh      int            // of them, on a connection of their own
	Reconnects int            // kept-alive connections that the server closed in an orderly way
	Failures   map[string]int // by kind
	Took       time.Duration
	Latencies  []time.Duration // of the answered, from the moment they were due; sorted
}

// Failed is the number of requests that were not answered with 200.
func (r Result) Failed() (n int) {
	for _, count := range r.Failures {
		n += count
	}
	return n
}

// Percentile of the latencies; p is 0 to 100.
func (r Result) Percentile(p float64) time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[min(len(r.Latencies)-1, int(float64(len(r.Latencies))*p/100))]
}

// backlog is the limit of requests that are due but not yet sent, in seconds of
// the rate.
const backlog = 10

// Run makes requests until ctx ends, and then waits for those in flight.
func Run(ctx context.Context, o Options) Result {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	due := make(chan request, o.Rate*backlog)
	workers := make([]*worker, o.Keepers)
	var all sync.WaitGroup
	for i := range workers {
		w := &worker{Options: o, result: Result{Failures: make(map[string]int)}}
		workers[i] = w
		all.Go(func() { w.work(due) })
	}
	began := time.Now()
	dispatch(ctx, o, due)
	all.Wait()

	sum := Result{Failures: make(map[string]int), Took: time.Since(began)}
	for _, w := range workers {
		sum.Requests += w.result.Requests
		sum.Fresh += w.result.Fresh
		sum.Reconnects += w.result.Reconnects
		sum.Latencies = append(sum.Latencies, w.result.Latencies...)
		for kind, n := range w.result.Failures {
			sum.Failures[kind] += n
		}
	}
	slices.Sort(sum.Latencies)
	return sum
}

// request is one that is due.
type request struct {
	at    time.Time
	fresh bool
}

// dispatch hands out the requests at their rate and closes due when ctx ends.
func dispatch(ctx context.Context, o Options, due chan<- request) {
	defer close(due)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for sent := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for ; sent < int(time.Since(began).Seconds()*float64(o.Rate)); sent++ {
			at := began.Add(time.Duration(sent) * time.Second / time.Duration(o.Rate))
			select {
			case due <- request{at, o.Fresh > 0 && sent%o.Fresh == 0}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// worker has one kept-alive connection.
type worker struct {
	Options
	result Result
	kept   net.Conn
	reader *bufio.Reader
}

func (w *worker) work(due <-chan request) {
	for r := range due {
		w.result.Requests++
		err := w.serve(r.fresh)
		if err != nil {
			w.result.Failures[kind(err)]++
			continue
		}
		w.result.Latencies = append(w.result.Latencies, time.Since(r.at))
	}
	w.drop()
}

func (w *worker) serve(fresh bool) error {
	if fresh {
		w.result.Fresh++
		conn, err := w.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = w.ask(conn, bufio.NewReader(conn))
		return err
	}
	if w.kept == nil {
		conn, err := w.dial()
		if err != nil {
			return err
		}
		w.kept, w.reader = conn, bufio.NewReader(conn)
	}
	goodbye, err := w.ask(w.kept, w.reader)
	if err != nil || goodbye {
		w.drop()
	}
	if goodbye {
		w.result.Reconnects++
	}
	return err
}

func (w *worker) drop() {
	if w.kept != nil {
		_ = w.kept.Close()
		w.kept = nil
	}
}

func (w *worker) dial() (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", w.Address, w.Timeout)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// ask makes one request. After Connection: close the connection has to end, with a FIN.
func (w *worker) ask(conn net.Conn, in *bufio.Reader) (closes bool, err error) {
	if err := conn.SetDeadline(time.Now().Add(w.Timeout)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+w.Address+"\r\n\r\n"); err != nil {
		return false, fmt.Errorf("ask: %w", err)
	}
	resp, err := Receive(in)
	if err != nil {
		return false, fmt.Errorf("answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("answer: status %d", resp.StatusCode)
	}
	if !resp.Close {
		return false, nil
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return true, fmt.Errorf("after Connection: close: %w", err)
	}
	return true, nil
}

// Receive reads a response to its end.
func Receive(in *bufio.Reader) (*http.Response, error) {
	response, err := http.ReadResponse(in, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	return response, err
}

// kind is what a failure is counted as.
func kind(err error) string {
	what := err.Error()
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		what = "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		what = "refused"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		what = "closed without an answer"
	case errors.Is(err, os.ErrDeadlineExceeded):
		what = "timed out"
	}
	return what
}
