// Package loadtest has the clients of tests that net/http cannot replace, because it would retry.
package loadtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Kept is a client that keeps its connection.
type Kept struct {
	net.Conn
	R *bufio.Reader // reads Conn
}

// Keep opens a connection, which is closed when the test ends. patience limits everything that happens on it.
func Keep(t *testing.T, address string, patience time.Duration) *Kept {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = c.Close() })
	return &Kept{c, bufio.NewReader(c)}
}

// Ask sends a request.
func (k *Kept) Ask(path string) { fmt.Fprintf(k, "GET %s HTTP/1.1\r\nHost: app\r\n\r\n", path) }

// Answer is the response to the oldest request without one, and its body.
func (k *Kept) Answer(t *testing.T) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(k.R, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// Receive reads a response to its end.
func Receive(in *bufio.Reader) (*http.Response, error) {
	response, err := http.ReadResponse(in, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	return response, err
}

// Load is the result of requests: why those failed that got no whole response with status 200.
type Load struct {
	Requests int
	Failures map[string]int

	mu sync.Mutex // guards Failures while requests are in flight
}

// Failed is the number of requests that failed.
func (l *Load) Failed() (n int) {
	for _, count := range l.Failures {
		n += count
	}
	return n
}

func (l *Load) String() string {
	out := fmt.Sprintf("%d of %d failed", l.Failed(), l.Requests)
	for _, why := range slices.Sorted(maps.Keys(l.Failures)) {
		out += fmt.Sprintf("; %d × %s", l.Failures[why], why)
	}
	return out
}

// End records how a request ended; why is empty if it was answered.
func (l *Load) End(why string) {
	if why == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Failures == nil {
		l.Failures = map[string]int{}
	}
	l.Failures[why]++
}

// backlog is how many seconds of requests may be unanswered: with more the machine does not carry the rate, and what is
// lost then says nothing about the pods.
const backlog = 10

// AtRate calls send with the number of each request, so many times a second, whether earlier ones have been answered or
// not. It returns when ctx has ended and all are answered. send returns why its request failed.
func AtRate(ctx context.Context, rate int, send func(i int) (why string)) *Load {
	l := &Load{}
	open := make(chan struct{}, backlog*rate)
	var flying sync.WaitGroup
	defer flying.Wait()
	began := time.Now()
	for ; ; l.Requests++ {
		// A late request does not delay those after it: each has its moment. Those that are due at the end are made.
		due := began.Add(time.Duration(l.Requests) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			if time.Until(due) > 0 {
				return l
			}
		case <-time.After(time.Until(due)):
		}
		select {
		case open <- struct{}{}:
		default:
			l.End(fmt.Sprintf("ended: the machine does not carry %d requests/s", rate))
			return l
		}
		i := l.Requests
		flying.Go(func() {
			l.End(send(i))
			<-open
		})
	}
}

// Send sends a request, and returns why it failed.
func Send(c *http.Client, r *http.Request) (why string) {
	response, err := c.Do(r)
	if err != nil {
		return strings.TrimSpace(err.Error()[strings.LastIndexByte(err.Error(), ':')+1:])
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return "truncated response"
	case response.StatusCode != http.StatusOK:
		return fmt.Sprintf("%d %.160s", response.StatusCode, text)
	}
	return ""
}
