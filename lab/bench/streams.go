package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/lab/bench/stream"
)

// What the load of streams is: as many answers of models at 25 tokens a second. Twice as many are more than one core
// can send and receive.
const (
	streamCount = 1000
	streamEvery = 40 * time.Millisecond
)

// What carries the tokens.
const (
	tokensSSE       = "Event streams"
	tokensWebSocket = "WebSockets"
)

var (
	tokenRate    = &metric{title: "tokens/s", show: whole, more: true}
	latest       = &metric{title: "latest of all", show: milliseconds}
	addedP99     = &metric{title: "p99 more than without a proxy", show: milliseconds} // in the same round
	cpuPerTokens = &metric{title: "CPU per 1,000 tokens", show: milliseconds}
	tokensCore   = &metric{title: "core used", show: percent} // at a rate that is the same for all
	perStream    = &metric{title: "memory per stream", show: kilobytes}
)

var streamsTable = &table{
	name: "streams", what: "1,000 event streams and WebSockets of 25 tokens/s", apps: []subject{streamApp}, ownApps: true,
	how: func(*bench) string {
		return fmt.Sprintf("%s streams, event streams in chunked responses or WebSockets, with a token of about 150 bytes on each every %d ms, evenly spaced over all of them. "+
			"How late a token is counts from when it was due (no coordinated omission). Each proxy on one core; client and app share another.",
			whole(streamCount), streamEvery.Milliseconds())
	},
	subjects: []string{"direct", "relay", "lastcall-http", "envoy", "haproxy-nodelay", "nginx"},
	quick:    []string{"direct", "lastcall-http", "envoy"},
	cases:    []string{tokensSSE, tokensWebSocket},
	columns: []column{middle(tokenRate), middle(p50), middle(p99), middle(addedP99), worst(latest).titled("latest of all"), middle(cpuPerTokens),
		middle(tokensCore), middle(perStream)},
	ratios: []*metric{cpuPerTokens},
	aims: []aim{
		{kase: tokensSSE, ours: "lastcall-http", of: addedP99, limit: 1e-3},
		{kase: tokensWebSocket, ours: "lastcall-http", of: addedP99, limit: 1e-3},
		{kase: tokensSSE, ours: "lastcall-http", of: tokensCore, limit: 0.5},
		{kase: tokensWebSocket, ours: "lastcall-http", of: tokensCore, limit: 0.5},
		{kase: tokensSSE, ours: "lastcall-http", of: cpuPerTokens, theirs: "envoy", limit: 1},
		{kase: tokensSSE, ours: "lastcall-http", of: cpuPerTokens, theirs: "haproxy-nodelay", limit: 1},
		{kase: tokensWebSocket, ours: "lastcall-http", of: cpuPerTokens, theirs: "envoy", limit: 1},
		{kase: tokensWebSocket, ours: "lastcall-http", of: cpuPerTokens, theirs: "haproxy-nodelay", limit: 1},
	},
	duration: time.Second,
	timed:    true, takes: 2500 * time.Millisecond,
	derive: func(o *outcome) {
		for _, subjects := range o.samples {
			for name, rounds := range subjects {
				for i, v := range rounds {
					if direct := subjects["direct"]; name != "direct" && v != nil && i < len(direct) && direct[i] != nil {
						v[addedP99] = v[p99] - direct[i][p99]
					}
				}
			}
		}
	},
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		app, err := b.app(ctx, streamApp, place{})
		if err != nil {
			return nil, err
		}
		defer app.stop()
		proxy, err := b.proxy(ctx, t.subject, app, place{})
		if err != nil {
			return nil, err
		}
		defer proxy.stop()
		idle, err := proxy.resident()
		if err != nil {
			return nil, err
		}
		kind := stream.SSE
		if t.kase == tokensWebSocket {
			kind = stream.WebSocket
		}
		client, err := stream.Open(ctx, stream.Options{Port: proxy.port, Kinds: []stream.Kind{kind}, Streams: streamCount, Every: streamEvery})
		if err != nil {
			return nil, err
		}
		defer client.Close()
		if _, err := client.Run(ctx, time.Second/2); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		before, err := proxy.cpu()
		if err != nil {
			return nil, err
		}
		result, err := client.Run(ctx, b.duration)
		if err != nil {
			return nil, err
		}
		after, err := proxy.cpu()
		if err != nil {
			return nil, err
		}
		loaded, err := proxy.resident()
		if err != nil {
			return nil, err
		}
		tokens := float64(len(result.Lateness))
		v := values{tokenRate: tokens / result.Took.Seconds(), p50: result.Percentile(50).Seconds(), p99: result.Percentile(99).Seconds(),
			latest: result.Percentile(100).Seconds()}
		if t.command != nil {
			used := (after - before).Seconds()
			v[cpuPerTokens], v[tokensCore], v[perStream] = used/tokens*1000, used/result.Took.Seconds(), float64(loaded-idle)/streamCount
		}
		return v, nil
	},
}
