package main

import (
	"context"
	"slices"
	"time"
)

// Metrics of the tables. Times are in seconds, memory in bytes.
var (
	requestRate   = &metric{title: "requests/s", show: whole, more: true}
	p50           = &metric{title: "p50", show: milliseconds}
	p99           = &metric{title: "p99", show: milliseconds}
	mean          = &metric{title: "mean", show: milliseconds} // h2load reports no percentiles
	cpuPerRequest = &metric{title: "CPU per request", show: unit(1e6, "%.1f µs")}
	// coreUsed is the proxy's share of its core, 0 to 1, under as much load as it takes. Well below 1, the load or the
	// app was the limit.
	coreUsed     = &metric{title: "core used", show: unit(100, "%.0f %%"), neutral: true}
	idleMemory   = &metric{title: "resident idle", show: megabytes}
	heldMemory   = &metric{title: "with them", show: megabytes}
	perPair      = &metric{title: "per client's connection", show: unit(1e-3, "%.1f KB")}
	socketsEach  = &metric{title: "sockets for each", show: unit(1, "%.2f")}
	toConnection = &metric{title: "connection, median", show: milliseconds} // from before the fork
	toAnswer     = &metric{title: "answer, median", show: milliseconds}
)

const (
	held         = 8000 // connections of memory
	manyClients  = 64
	shortClients = 32 // with a connection for each request

	// The load of HTTP/2.
	http2Connections, http2Streams = 16, 32

	loadTime = time.Second // after as much to warm up
	settle   = 3 * time.Second
)

// table is one of the benchmark's. To add one: an entry in tables, and a section with its marks in BENCHMARKS.md.
type table struct {
	name, how string   // how it is measured, for its reader: whole sentences
	subjects  []string // names
	cases     []load   // each has rows of its own
	columns   []column
	aims      []aim
	rounds    int // where it is not the default
	// measure measures a proxy that has just been started; nil: it is loaded.
	measure func(context.Context, load, *process) (values, error)
}

// load describes the clients of a table.
type load struct {
	title      string // where a table has several
	path       string
	clients    int
	close      bool // a connection for each request
	tls, http2 bool // HTTP/2 without TLS, by prior knowledge
}

// aim is the value that lastcall has to reach in each case of a table.
type aim struct {
	ours   string // subject
	of     *metric
	limit  float64 // at least so much where more is better, else at most: in the metric's unit, or times the value of
	theirs string  // this subject
}

var (
	all           = subjectNames()
	quickSubjects = []string{"direct", "lastcall-http", "envoy", "haproxy-http"}
)

// tables in the order in which they are made.
var tables = []*table{
	{
		name:     "http1",
		how:      "HTTP/1.1, 64 keep-alive connections (wrk), each proxy on one core; load and app share another.",
		subjects: all,
		cases:    []load{{path: "/get", clients: manyClients}},
		columns: []column{middle(requestRate), extent(requestRate), middle(p50), middle(p99), middle(cpuPerRequest),
			middle(coreUsed), middle(idleMemory)},
		aims: []aim{
			{ours: "lastcall-http", of: requestRate, limit: 4, theirs: "envoy"},
			{ours: "lastcall-http", of: cpuPerRequest, limit: 1, theirs: "haproxy-http"},
			{ours: "lastcall-tcp", of: cpuPerRequest, limit: 1, theirs: "haproxy-tcp"},
			{ours: "lastcall-http", of: idleMemory, limit: 15e6},
		},
	},
	{
		name:     "short",
		how:      "As above, with a connection for each request (`Connection: close`), 32 at a time.",
		subjects: all,
		cases:    []load{{path: "/get", clients: shortClients, close: true}},
		columns:  []column{middle(requestRate), middle(p50), middle(p99), middle(cpuPerRequest), middle(coreUsed)},
		aims: []aim{
			{ours: "lastcall-http", of: cpuPerRequest, limit: 1, theirs: "haproxy-http"},
			{ours: "lastcall-tcp", of: cpuPerRequest, limit: 1, theirs: "haproxy-http"},
			{ours: "lastcall-http", of: p99, limit: 1, theirs: "haproxy-http"},
		},
	},
	{
		name:     "bodies",
		how:      "As above, 64 keep-alive connections.",
		subjects: []string{"lastcall-http", "envoy", "haproxy-http", "nginx"},
		cases: []load{
			{title: "16 KB", path: "/body16", clients: manyClients},
			{title: "1 MB", path: "/body1024", clients: manyClients},
		},
		columns: []column{middle(requestRate), middle(cpuPerRequest)},
		aims:    []aim{{ours: "lastcall-http", of: cpuPerRequest, limit: 1, theirs: "haproxy-http"}},
	},
	{
		name:     "tls",
		how:      "As above, with TLS (RSA of 2,048 bits); 64 connections, or 32 with a handshake for each request.",
		subjects: []string{"lastcall-http", "haproxy-http", "nginx"},
		cases: []load{
			{title: "kept alive", path: "/get", clients: manyClients, tls: true},
			{title: "a handshake for each request", path: "/get", clients: shortClients, close: true, tls: true},
		},
		columns: []column{middle(requestRate), middle(cpuPerRequest)},
	},
	{
		name: "http2",
		how: "HTTP/2 without TLS, by prior knowledge, 16 connections of 32 streams (h2load). The app is nghttpd, and " +
			"nginx for nginx, which uses HTTP/1.1 towards it. Each proxy on one core; load and app share another.",
		subjects: []string{"direct", "lastcall-http", "envoy", "haproxy-http", "nginx"},
		cases:    []load{{path: "/get", clients: http2Connections, http2: true}},
		columns: []column{middle(requestRate), extent(requestRate), middle(mean), middle(cpuPerRequest),
			middle(coreUsed), middle(idleMemory)},
		aims: []aim{
			{ours: "lastcall-http", of: requestRate, limit: 4, theirs: "envoy"},
			{ours: "lastcall-http", of: cpuPerRequest, limit: 1, theirs: "haproxy-http"},
		},
	},
	{
		name: "memory",
		how: "8,000 idle keep-alive connections, each of which has made one request, 3s after the last one, without " +
			"the kernel's part. Sockets for each: 2 is a connection to the app for each client's, 1 a pool.",
		subjects: slices.DeleteFunc(subjectNames(), func(name string) bool { return name == "direct" }),
		cases:    []load{{clients: held}},
		columns:  []column{middle(idleMemory), middle(heldMemory), middle(perPair), middle(socketsEach)},
		aims: []aim{
			{ours: "lastcall-http", of: perPair, limit: 10e3},
			{ours: "lastcall-http", of: perPair, limit: 1, theirs: "envoy"},
			{ours: "lastcall-tcp", of: perPair, limit: 10e3},
		},
		rounds:  3, // the memory of one program hardly differs from round to round
		measure: hold,
	},
	{
		name:     "start",
		how:      "From before the fork until a connection is accepted and until a request is answered, on one core.",
		subjects: []string{"lastcall-http", "envoy", "haproxy-http", "nginx"},
		cases:    []load{{clients: manyClients}},
		columns:  []column{middle(toConnection), worst(toConnection), middle(toAnswer), worst(toAnswer)},
		aims:     []aim{{ours: "lastcall-http", of: toAnswer, limit: 0.02}},
		rounds:   20,
		measure:  serve,
	},
}

func tableNames() (names []string) {
	for _, t := range tables {
		names = append(names, t.name)
	}
	return names
}
