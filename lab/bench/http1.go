package main

import (
	"context"
	"fmt"
	"time"
)

var http1Table = &table{
	name: "http1", what: "requests/s with keep-alive connections", apps: []subject{backend}, tools: []string{"wrk"},
	how: func(b *bench) string {
		return fmt.Sprintf(
			"HTTP/1.1, %d keep-alive connections (wrk), each proxy on one core; load and app share another.", connections)
	},
	subjects: []string{"direct", "lastcall-http", "lastcall-tcp", "envoy", "haproxy-http", "haproxy-tcp", "nginx"},
	columns: []column{middle(requestRate), extent(requestRate), middle(p50), middle(p99), middle(cpuPerRequest),
		middle(coreUsed), middle(idleMemory)},
	ratios: []*metric{requestRate, cpuPerRequest},
	aims: []aim{
		{ours: "lastcall-http", of: requestRate, theirs: "envoy", limit: 4},
		{ours: "lastcall-http", of: cpuPerRequest, theirs: "haproxy-http", limit: 1},
		{ours: "lastcall-tcp", of: cpuPerRequest, theirs: "haproxy-tcp", limit: 1},
		{ours: "lastcall-http", of: idleMemory, limit: 15e6},
	},
	timed: true,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		return b.load(ctx, t, backend, place{Clients: connections}, b.wrk("/get", connections))
	},
}

// runLoad loads a proxy for a time.
type runLoad func(context.Context, *process, time.Duration) (load, error)

// load starts the subject in front of the app, loads it for b.duration, and ends it.
func (b *bench) load(ctx context.Context, t turn, app subject, p place, run runLoad) (values, error) {
	proxy, err := b.proxy(ctx, t.subject, t.apps[app.name], p)
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	idle, err := proxy.resident()
	if err != nil {
		return nil, err
	}
	// The warm-up fills pools and opens the connections to the app.
	if _, err := run(ctx, proxy, time.Second); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	before, err := proxy.cpu()
	if err != nil {
		return nil, err
	}
	result, err := run(ctx, proxy, b.duration)
	if err != nil {
		return nil, err
	}
	after, err := proxy.cpu()
	if err != nil {
		return nil, err
	}
	v := values{requestRate: result.perSecond()}
	for m, d := range map[*metric]time.Duration{p50: result.p50, p99: result.p99, mean: result.mean} {
		if d > 0 {
			v[m] = d.Seconds()
		}
	}
	if t.command != nil {
		used := (after - before).Seconds()
		v[cpuPerRequest], v[coreUsed] = used/float64(result.requests), used/result.elapsed.Seconds()
		v[idleMemory] = float64(idle)
	}
	return v, nil
}
