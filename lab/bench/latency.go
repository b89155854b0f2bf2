package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/lab/bench/open"
)

var (
	halfRate = &metric{title: "requests/s", show: whole, more: true}
	ourP99   = &metric{title: "lastcall's p99 at that rate", show: milliseconds}
	// p99Times is of the same turn.
	p99Times = &metric{title: "lastcall's p99 to its p99", show: hundredths}
)

// latencyTable compares how long requests take at half of the most that each proxy can do.
var latencyTable = &table{
	name: "latency", what: "p99 at half of each one's most requests/s, of HTTP/1.1",
	apps: []subject{backend}, tools: []string{"wrk"},
	how: func(b *bench) string {
		return fmt.Sprintf("HTTP/1.1, %d kept connections, requests evenly spaced at half of the most that each proxy did in the same turn; "+
			"a latency counts from when its request was due. lastcall runs after the other one at the same rate.", connections)
	},
	subjects: []string{"direct", "lastcall-http", "envoy", "haproxy-http", "nginx"},
	columns:  []column{middle(halfRate), middle(p50), middle(p99), extent(p99), middle(ourP99), middle(p99Times)},
	aims: []aim{
		{ours: "envoy", of: p99Times, limit: 1}, {ours: "haproxy-http", of: p99Times, limit: 1},
		{ours: "nginx", of: p99Times, limit: 1},
	},
	timed: true, quick: []string{"lastcall-http", "envoy"},
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		app := t.apps[backend.name]
		rate, result, err := b.halfLoad(ctx, t.subject, app, 0)
		if err != nil {
			return nil, err
		}
		v := values{halfRate: rate, p50: result.Percentile(50).Seconds(), p99: result.Percentile(99).Seconds()}
		if t.ours || t.command == nil {
			return v, nil
		}
		ours := b.subjects[max(0, slices.IndexFunc(b.subjects, func(s subject) bool { return s.name == "lastcall-http" }))]
		if ours.name == "lastcall-http" {
			_, result, err = b.halfLoad(ctx, ours, app, rate)
			v[ourP99] = result.Percentile(99).Seconds()
			v[p99Times] = v[ourP99] / v[p99]
		}
		return v, err
	},
}

// halfLoad starts the subject, and loads it at the rate, or without one at half of the most that it does.
func (b *bench) halfLoad(ctx context.Context, s subject, app *process, rate float64) (float64, open.Result, error) {
	proxy, err := b.proxy(ctx, s, app, place{Clients: connections})
	if err != nil {
		return 0, open.Result{}, err
	}
	defer proxy.stop()
	first := b.duration
	if rate != 0 {
		first = time.Second // only to warm it up
	}
	most, err := b.wrk("/get", connections)(ctx, proxy, first)
	if err != nil {
		return 0, open.Result{}, err
	}
	rate = cmp.Or(rate, most.perSecond()/2)
	result, err := open.Run(ctx, open.Options{
		Port: proxy.port, Path: "/get", Connections: connections, Rate: rate, Duration: b.duration,
	})
	return rate, result, err
}
