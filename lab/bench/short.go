package main

import (
	"context"
	"fmt"
)

// shortClients is how many clients have a connection open at any time.
const shortClients = 32

var shortTable = &table{
	name: "short", what: "requests/s with a connection for each request", apps: []subject{backend}, tools: []string{"wrk"},
	how: func(*bench) string {
		return fmt.Sprintf("As above, with a connection for each request (`Connection: close`), %d at a time.", shortClients)
	},
	subjects: []string{"direct", "lastcall-http", "lastcall-tcp", "envoy", "haproxy-http", "haproxy-tcp", "nginx"},
	columns: []column{middle(requestRate), middle(p50), middle(p99),
		middle(cpuPerRequest), middle(coreUsed)},
	ratios: []*metric{requestRate, cpuPerRequest},
	aims: []aim{
		{ours: "lastcall-http", of: cpuPerRequest, theirs: "haproxy-http", limit: 1},
		{ours: "lastcall-tcp", of: cpuPerRequest, theirs: "haproxy-http", limit: 1},
		{ours: "lastcall-http", of: p99, theirs: "haproxy-http", limit: 1},
	},
	timed: true, quick: []string{"lastcall-http", "haproxy-http"},
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		return b.load(ctx, t, backend, place{Clients: shortClients}, b.wrk("/get", shortClients, "Connection: close"))
	},
}
