//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// result of a load: how many requests were made, and what became of those that were not answered with 200, whole.
type result struct {
	sync.Mutex
	requests int
	failures map[string]int
}

func (r *result) failed() (n int) {
	for _, count := range r.failures {
		n += count
	}
	return n
}

func (r *result) String() string {
	out := fmt.Sprintf("%d of %d failed", r.failed(), r.requests)
	for _, name := range slices.Sorted(maps.Keys(r.failures)) {
		out += fmt.Sprintf("; %d × %s", r.failures[name], name)
	}
	return out
}

// durations are how long the app takes for a request, in turn: most are short, as in life.
var durations = []string{"0", "0.01", "0.05", "0.01", "0.2", "0", "0.01", "1", "0.05", "3"}

// load asks at a fixed rate, whether earlier requests have been answered or not, over kept connections, until ctx ends,
// and returns when the last has been answered. No request is repeated.
func load(ctx context.Context, url string, rate int) *result {
	return loadBy(ctx, &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}, url, rate)
}

// loadBy does so with a client.
func loadBy(ctx context.Context, c *http.Client, url string, rate int) *result {
	defer c.CloseIdleConnections()
	return loadEach(ctx, rate, func(i int) (why string) { return ask(c, url+"/delay/"+durations[i%len(durations)]) })
}

// backlog is how many seconds of requests may be unanswered. The longest takes 3 s: more means that the machine does not
// carry the rate, and what is lost then says nothing about the pods.
const backlog = 10

// loadEach calls f with the number of each request. f returns why its request failed.
func loadEach(ctx context.Context, rate int, f func(i int) (why string)) *result {
	r := &result{failures: map[string]int{}}
	open := make(chan struct{}, backlog*rate)
	var asking sync.WaitGroup
	defer asking.Wait()
	began := time.Now()
	for {
		// A late request does not delay those after it: each has its moment. Those that are due at the end are made.
		due := began.Add(time.Duration(r.requests) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			if time.Until(due) > 0 {
				return r
			}
		case <-time.After(time.Until(due)):
		}
		i := r.requests
		r.requests++
		select {
		case open <- struct{}{}:
		default:
			r.Lock()
			defer r.Unlock()
			r.failures[fmt.Sprintf("ended: the machine does not carry %d requests/s", rate)]++
			return r
		}
		asking.Go(func() {
			defer func() { <-open }()
			if why := f(i); why != "" {
				r.Lock()
				defer r.Unlock()
				r.failures[why]++
			}
		})
	}
}

func ask(c *http.Client, url string) (why string) {
	// A method that no client library asks with again by itself.
	response, err := c.Post(url, "text/plain", strings.NewReader("x"))
	if err != nil {
		return err.Error()[strings.LastIndexByte(err.Error(), ':')+1:]
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return "cut answer"
	case response.StatusCode != http.StatusOK:
		return fmt.Sprintf("%d %.160s", response.StatusCode, body)
	}
	return ""
}
