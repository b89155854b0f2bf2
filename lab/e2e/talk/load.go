package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// durations are how long the app takes for a request, in turn, s.
var durations = []string{"0.02", "0.05", "0.02", "0.2", "0.02", "1", "0.05", "3", "0.02", "8"}

// loaded is how many requests were made, and why those failed that were not answered with 200, whole.
type loaded struct {
	mu       sync.Mutex
	Requests int
	Failures map[string]int
}

// load asks at a fixed rate, whether earlier requests have been answered or not, over kept connections, until ctx ends, and
// returns when the last one has been answered. No request is repeated.
func load(ctx context.Context, url, host string, rate int) *loaded {
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer c.CloseIdleConnections()
	r := &loaded{Failures: map[string]int{}}
	var asking sync.WaitGroup
	defer asking.Wait()
	fmt.Println("begun")
	began := time.Now()
	for {
		// A late request does not delay those after it: each has its moment.
		due := began.Add(time.Duration(r.Requests) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			return r
		case <-time.After(time.Until(due)):
		}
		path := "/delay/" + durations[r.Requests%len(durations)]
		r.Requests++
		asking.Go(func() {
			if why := post(c, url+path, host); why != "" {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.Failures[why]++
			}
		})
	}
}

func post(c *http.Client, url, host string) (why string) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader("x"))
	if err != nil {
		return err.Error()
	}
	request.Host = host
	response, err := c.Do(request)
	if err != nil {
		return strings.TrimSpace(err.Error()[strings.LastIndexByte(err.Error(), ':')+1:])
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return "cut response"
	case response.StatusCode != http.StatusOK:
		return fmt.Sprintf("%d %.160s", response.StatusCode, body)
	}
	return ""
}
