package main

import (
	"context"
	"fmt"
	"time"
)

// What the load of HTTP/2 is.
const http2Connections, http2Streams = 16, 32

// mean is of the latencies: h2load reports no percentiles.
var mean = &metric{title: "mean", show: milliseconds}

var http2Table = &table{
	name: "http2",
	what: fmt.Sprintf("the same in HTTP/2 without TLS, %d connections of %d streams", http2Connections, http2Streams),
	apps: []subject{backend, backend2}, tools: []string{"h2load"},
	how: func(*bench) string {
		return fmt.Sprintf("HTTP/2 without TLS, by prior knowledge, %d connections of %d streams (h2load). "+
			"The app is nghttpd, and nginx for nginx, which uses HTTP/1.1 towards it. "+
			"Each proxy on one core; load and app share another.",
			http2Connections, http2Streams)
	},
	subjects: []string{"direct", "lastcall-http", "envoy", "haproxy-http", "nginx"},
	columns: []column{middle(requestRate), extent(requestRate), middle(mean), middle(cpuPerRequest), middle(coreUsed),
		middle(idleMemory)},
	ratios: []*metric{requestRate, cpuPerRequest},
	aims: []aim{
		{ours: "lastcall-http", of: requestRate, theirs: "envoy", limit: 4},
		{ours: "lastcall-http", of: cpuPerRequest, theirs: "haproxy-http", limit: 1},
	},
	timed: true,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		app := backend2
		if t.peer == "nginx" {
			app = backend
		}
		run := func(ctx context.Context, proxy *process, duration time.Duration) (load, error) {
			return h2load(ctx, b.programs["h2load"], proxy.url("/get"), duration)
		}
		return b.load(ctx, t, app, place{HTTP2: true}, run)
	},
}
