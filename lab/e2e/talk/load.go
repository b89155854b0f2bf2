package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// durations are how long the app takes for a request, in turn, s.
var durations = []string{"0.02", "0.05", "0.02", "0.2", "0.02", "1", "0.05", "3", "0.02", "8"}

// load asks at a fixed rate over kept connections, until ctx ends. No request is repeated.
func load(ctx context.Context, url, host string, rate int) *loadtest.Load {
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer c.CloseIdleConnections()
	fmt.Println("begun")
	return loadtest.AtRate(ctx, rate, func(i int) (why string) {
		at := url + "/delay/" + durations[i%len(durations)]
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, at, strings.NewReader("x"))
		if err != nil {
			return err.Error()
		}
		request.Host = host
		return loadtest.Send(c, request)
	})
}
