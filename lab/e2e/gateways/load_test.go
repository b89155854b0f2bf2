//go:build e2e

package gateways

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// durations are how long the app takes for a request, in turn.
var durations = []string{"0", "0.01", "0.05", "0.01", "0.2", "0", "0.01", "1", "0.05", "3"}

// result has the outcomes of the requests of a load, by the kind of client.
type result map[string]*loadtest.Load

func (r result) total() (requests, lost int) {
	for _, l := range r {
		requests, lost = requests+l.Requests, lost+l.Failed()
	}
	return requests, lost
}

func (r result) String() string {
	requests, lost := r.total()
	out := fmt.Sprintf("%d of %d lost", lost, requests)
	for _, kind := range slices.Sorted(maps.Keys(r)) {
		out += fmt.Sprintf("; %s: %v", kind, r[kind])
	}
	return out
}

// load sends requests at a fixed rate, a third of them by each kind of client, until ctx ends. No request is repeated.
func load(ctx context.Context, b *balancer, rate int) result {
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	r := result{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for kind, transport := range map[string]*http.Transport{
		"HTTP/1.1, kept connections": {DialContext: b.DialContext, MaxIdleConnsPerHost: 1000},
		"HTTP/1.1, new connections":  {DialContext: b.DialContext, DisableKeepAlives: true},
		"HTTP/2":                     {DialContext: b.DialContext, Protocols: h2},
	} {
		var clients []*http.Client
		for range 4 {
			clients = append(clients, &http.Client{Timeout: 30 * time.Second, Transport: transport.Clone()})
		}
		all.Go(func() {
			l := loadtest.AtRate(ctx, rate/3, func(i int) string {
				return send(clients[i%4], "http://web/delay/"+durations[i%len(durations)])
			})
			for _, c := range clients {
				c.CloseIdleConnections()
			}
			mu.Lock()
			defer mu.Unlock()
			r[kind] = l
		})
	}
	all.Wait()
	return r
}

// send returns why a request failed. Clients do not repeat a POST by themselves.
func send(c *http.Client, url string) (why string) {
	began, pod := time.Now(), "no connection"
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { pod = i.Conn.RemoteAddr().String() }}
	ctx := httptrace.WithClientTrace(context.Background(), trace)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("x"))
	if err != nil {
		return err.Error()
	}
	if why = loadtest.Send(c, request); why != "" {
		took := time.Since(began).Round(time.Millisecond)
		why += fmt.Sprintf(" (%s, sent at %s, %v later)", pod, began.Format("15:04:05.000"), took)
	}
	return why
}
