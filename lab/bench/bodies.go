package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// bodies are the sizes of the responses, bytes, by case. backend.conf serves a file of each.
var bodies = map[string]int{"16 KB": 16 << 10, "1 MB": 1 << 20}

// backendOfBodies is backend with these files.
var backendOfBodies = subject{name: "backend-bodies", peer: "nginx",
	command: func(program string, p place) ([]string, error) {
		for _, size := range bodies {
			path := filepath.Join(p.Dir, fmt.Sprintf("body%d", size))
			if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
				return nil, fmt.Errorf("write a body: %w", err)
			}
		}
		return nginx("backend.conf")(program, p)
	}}

var bodiesTable = &table{
	name: "bodies", what: "CPU per response of 16 KB and of 1 MB", apps: []subject{backendOfBodies},
	tools: []string{"wrk"},
	how: func(*bench) string {
		return fmt.Sprintf("As above, %d keep-alive connections.", connections)
	},
	subjects: []string{"lastcall-http", "envoy", "haproxy-http", "nginx"},
	cases:    []string{"16 KB", "1 MB"},
	columns:  []column{middle(requestRate), middle(cpuPerRequest)},
	ratios:   []*metric{requestRate, cpuPerRequest},
	aims:     []aim{{ours: "lastcall-http", of: cpuPerRequest, theirs: "haproxy-http", limit: 1}},
	timed:    true, quick: []string{"lastcall-http", "haproxy-http"},
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		run := b.wrk(fmt.Sprintf("/body%d", bodies[t.kase]), connections)
		return b.load(ctx, t, backendOfBodies, place{Clients: connections}, run)
	},
}
