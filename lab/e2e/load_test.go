//go:build e2e

package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// durations are how long the app takes for a request, in turn: most are short, as in life.
var durations = []string{"0", "0.01", "0.05", "0.01", "0.2", "0", "0.01", "1", "0.05", "3"}

// load sends requests at a fixed rate over kept connections, until ctx ends. No request is repeated.
func load(ctx context.Context, url string, rate int) *loadtest.Load {
	c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer c.CloseIdleConnections()
	return loadtest.AtRate(ctx, rate, func(i int) (why string) {
		return post(c, url+"/delay/"+durations[i%len(durations)], strings.NewReader("x"))
	})
}

// begin begins a load, which stop ends.
func begin(ctx context.Context, url string, rate int) (stop func() *loadtest.Load) {
	ctx, cancel := context.WithCancel(ctx)
	loaded := make(chan *loadtest.Load, 1)
	go func() { loaded <- load(ctx, url, rate) }()
	return func() *loadtest.Load { cancel(); return <-loaded }
}

// post sends what no client library asks with again by itself, and returns why it failed.
func post(c *http.Client, url string, body io.Reader) (why string) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, body)
	if err != nil {
		return err.Error()
	}
	return loadtest.Send(c, request)
}
