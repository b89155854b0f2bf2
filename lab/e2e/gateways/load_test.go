//go:build e2e

package gateways

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"
)

// durations are how long the app takes for a request, in turn.
var durations = []string{"0", "0.01", "0.05", "0.01", "0.2", "0", "0.01", "1", "0.05", "3"}

// kinds of clients that share the requests.
var kinds = []string{"HTTP/1.1, kept connections", "HTTP/1.1, new connections", "HTTP/2"}

// result is what became of the requests of a load, by the kind of client.
type result struct {
	mu       sync.Mutex
	requests [3]int
	lost     [3]int
	reasons  map[string]int
}

func (r *result) total() (requests, lost int) {
	for i := range kinds {
		requests, lost = requests+r.requests[i], lost+r.lost[i]
	}
	return requests, lost
}

func (r *result) String() string {
	requests, lost := r.total()
	out := fmt.Sprintf("%d of %d lost", lost, requests)
	for i, kind := range kinds {
		out += fmt.Sprintf("; %s: %d of %d", kind, r.lost[i], r.requests[i])
	}
	for _, name := range slices.Sorted(maps.Keys(r.reasons)) {
		out += fmt.Sprintf("; %d × %s", r.reasons[name], name)
	}
	return out
}

// load sends requests at a fixed rate, whether earlier ones have been answered or not, until ctx ends, and returns when the
// last one has been answered. No request is repeated.
func load(ctx context.Context, b *balancer, rate int) *result {
	clients := make([][]*http.Client, len(kinds))
	for range 4 {
		h2 := new(http.Protocols)
		h2.SetUnencryptedHTTP2(true)
		for i, transport := range []*http.Transport{
			{DialContext: b.DialContext, MaxIdleConnsPerHost: 1000},
			{DialContext: b.DialContext, DisableKeepAlives: true},
			{DialContext: b.DialContext, Protocols: h2},
		} {
			clients[i] = append(clients[i], &http.Client{Timeout: 30 * time.Second, Transport: transport})
			defer transport.CloseIdleConnections()
		}
	}
	r := &result{reasons: map[string]int{}}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	began := time.Now()
	for i := 0; ; i++ {
		// A late request does not delay those after it: each has its moment.
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			return r
		case <-time.After(time.Until(due)):
		}
		kind := i % len(kinds)
		c := clients[kind][i/len(kinds)%4]
		waiting.Go(func() {
			why := send(c, "http://web/delay/"+durations[i%len(durations)])
			r.mu.Lock()
			defer r.mu.Unlock()
			r.requests[kind]++
			if why != "" {
				r.lost[kind]++
				r.reasons[why]++
			}
		})
	}
}

// send returns why a request failed. Clients do not repeat a POST by themselves.
func send(c *http.Client, url string) (why string) {
	began, pod := time.Now(), "no connection"
	defer func() {
		if why != "" {
			why += fmt.Sprintf(" (%s, sent at %s, %v later)", pod, began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond))
		}
	}()
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { pod = i.Conn.RemoteAddr().String() }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), http.MethodPost, url, strings.NewReader("x"))
	if err != nil {
		return err.Error()
	}
	response, err := c.Do(request)
	if err != nil {
		return err.Error()[strings.LastIndexByte(err.Error(), ':')+1:]
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return "truncated response"
	case response.StatusCode != http.StatusOK:
		return fmt.Sprintf("%d %.160s", response.StatusCode, body)
	}
	return ""
}
