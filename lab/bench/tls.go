package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/lab/bench/bulk"
	"github.com/lastcall-dev/lastcall/lab/bench/tlsload"
)

// The cases of TLS.
const (
	tlsKept    = "Requests on kept connections"
	tlsNew     = "A connection and a full handshake for each request"
	tlsResumed = "A connection that resumes a session for each request"
	tlsMutual  = "The same as a full handshake, with a client certificate (mTLS)"
)

// handshakeClients is how many clients connect at a time.
const handshakeClients = 16

// handshakeAgreed is what all agree on, or their handshakes could not be compared.
const handshakeAgreed = "TLS 1.3, X25519, TLS_AES_128_GCM_SHA256"

var tlsTable = &table{
	name: "tls", what: "requests/s and handshakes/s with TLS 1.3", apps: []subject{backend}, tools: []string{"wrk"},
	how: func(b *bench) string {
		return fmt.Sprintf("TLS 1.3, ECDSA P-256, key exchange X25519, TLS_AES_128_GCM_SHA256. "+
			"Kept: %d connections (wrk). Handshakes: %d clients, each connects, makes one request and reads to the end; "+
			"the app's side is clear. Load and app share the other core and are the limit of the faster ones: the figure to compare is CPU per request.", b.connections, handshakeClients)
	},
	subjects: []string{"crypto-tls", "lastcall-http", "lastcall-clear", "envoy", "haproxy-http", "nginx", "caddy"},
	cases:    []string{tlsKept, tlsNew, tlsResumed, tlsMutual},
	columns:  []column{middle(requestRate), extent(requestRate), middle(p50), middle(p99), middle(cpuPerRequest), extent(cpuPerRequest), middle(coreUsed)},
	aims: []aim{
		{kase: tlsKept, ours: "lastcall-http", of: cpuPerRequest, theirs: "lastcall-clear", limit: 1.25},
		{kase: tlsKept, ours: "lastcall-http", of: cpuPerRequest, theirs: "envoy", limit: 1. / 3},
		{kase: tlsNew, ours: "lastcall-http", of: cpuPerRequest, theirs: "nginx", limit: 1},
		{kase: tlsResumed, ours: "lastcall-http", of: cpuPerRequest, theirs: "nginx", limit: 1},
		{kase: tlsMutual, ours: "lastcall-http", of: cpuPerRequest, theirs: "nginx", limit: 1},
	},
	without: func(kase string, s subject) bool {
		switch s.name {
		case "lastcall-clear":
			return kase != tlsKept
		case "crypto-tls":
			return kase == tlsKept
		}
		return false
	},
	duration: time.Second, quickCases: []string{tlsKept, tlsNew},
	timed: true, takes: 2700 * time.Millisecond,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		files, err := b.makeTLS(t.kase == tlsMutual)
		if err != nil {
			return nil, err
		}
		p := place{Clients: b.connections, TLS: files}
		if t.name == "lastcall-clear" {
			p.TLS = nil
		}
		return b.load(ctx, t, backend, p, func(ctx context.Context, proxy *process, duration time.Duration) (load, error) {
			if t.kase == tlsKept {
				return wrk(ctx, b.tool("wrk"), proxy.url(), b.connections, duration)
			}
			r, err := tlsload.Handshakes{Address: proxy.address(), Connections: handshakeClients, Config: files.client(),
				Resume: t.kase == tlsResumed, Duration: duration}.Run(ctx)
			if err == nil && r.Agreed != handshakeAgreed {
				err = fmt.Errorf("agreed on %s, not on %s as the others", r.Agreed, handshakeAgreed)
			}
			return load{requests: r.Requests, elapsed: r.Took, p50: r.P50, p99: r.P99}, err
		})
	},
}

var tlsBodiesTable = &table{
	name: "tls-bodies", what: "bodies of 10 MB either way over TLS 1.3", apps: []subject{bulkApp},
	how: func(*bench) string {
		return fmt.Sprintf("%d connections; TLS_AES_128_GCM_SHA256, records of 16 KB. Clients are Go's crypto/tls and share a core with the app: GB/s are theirs as much as the proxy's, "+
			"and processor time is what to compare.", bodyConnections)
	},
	subjects: []string{"lastcall-http", "envoy", "haproxy-http", "nginx", "caddy"},
	cases:    []string{bodyDown, bodyUp},
	quick:    []string{"lastcall-http", "haproxy-http"},
	columns:  []column{middle(gigabytes), extent(gigabytes), middle(cpuPerByte), middle(coreUsed)},
	aims: []aim{
		{kase: bodyDown, ours: "lastcall-http", of: cpuPerByte, theirs: "nginx", limit: 1}, {kase: bodyUp, ours: "lastcall-http", of: cpuPerByte, theirs: "nginx", limit: 1},
		{kase: bodyDown, ours: "lastcall-http", of: cpuPerByte, theirs: "haproxy-http", limit: 1}, {kase: bodyUp, ours: "lastcall-http", of: cpuPerByte, theirs: "haproxy-http", limit: 1},
	},
	duration: time.Second, timed: true, takes: 2 * time.Second,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		files, err := b.makeTLS(false)
		if err != nil {
			return nil, err
		}
		return b.moveBodies(ctx, t, place{TLS: files}, bulk.Options{Connections: bodyConnections, Size: bodySize, Upload: t.kase == bodyUp, TLS: files.client()})
	},
}

// Cases of the memory of TLS.
const (
	tlsIdle       = "TLS 1.3"
	tlsIdleMutual = "TLS 1.3 with a client certificate"
)

var tlsMemoryTable = &table{
	name: "tls-memory", what: "resident memory with --held idle TLS connections", apps: []subject{backend}, ownApps: true, many: true,
	how: func(b *bench) string {
		return fmt.Sprintf("%s idle keep-alive connections, each of which has made one request, %s after the last one.", whole(float64(b.held)), settle)
	},
	subjects: []string{"lastcall-http", "envoy", "haproxy-http", "nginx", "caddy"},
	cases:    []string{tlsIdle, tlsIdleMutual},
	quick:    []string{"lastcall-http"}, quickCases: []string{tlsIdle},
	columns: []column{middle(idleMemory), middle(withThem), middle(perPair), middle(socketsEach)},
	aims: []aim{
		{kase: tlsIdle, ours: "lastcall-http", of: perPair, limit: 20e3}, {kase: tlsIdle, ours: "lastcall-http", of: perPair, theirs: "envoy", limit: 1},
		{kase: tlsIdleMutual, ours: "lastcall-http", of: perPair, limit: 20e3},
	},
	without: func(kase string, s subject) bool { return kase == tlsIdleMutual && s.name == "caddy" },
	rounds:  1, // the memory of one program hardly differs from round to round
	takes:   13 * time.Second,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		files, err := b.makeTLS(t.kase == tlsIdleMutual)
		if err != nil {
			return nil, err
		}
		held, err := b.hold(ctx, t.subject, b.held, files)
		if err != nil {
			return nil, err
		}
		defer held.release()
		return values{idleMemory: held.before, withThem: held.resident, perPair: (held.resident - held.before) / float64(b.held),
			socketsEach: held.sockets / float64(b.held)}, nil
	},
}

var processors = &metric{title: "vCPU", show: thousandths}

// mtls1000Table is what Istio publishes of its proxies: one proxy, 1,000 HTTP requests/s with 1 KB of payload, mTLS.
var mtls1000Table = &table{
	name: "mtls1000", what: "processor time and memory for 1,000 requests/s of 1 KB with mTLS", apps: []subject{bulkApp},
	how: func(b *bench) string {
		return fmt.Sprintf("One proxy that terminates mTLS in front of its app; %d requests/s evenly spread over %d kept connections, 1 KB each way, for %s. "+
			"A latency counts from when its request was due, and most of it is the Go client's.", mtlsRate, mtlsConnections, b.duration)
	},
	subjects: []string{"lastcall-http", "envoy", "haproxy-http", "nginx"},
	columns:  []column{middle(processors), extent(processors), middle(p50), middle(p99), middle(idleMemory), middle(usedMemory)},
	aims: []aim{
		{ours: "lastcall-http", of: processors, limit: 0.02}, {ours: "lastcall-http", of: processors, theirs: "envoy", limit: 0.5},
		{ours: "lastcall-http", of: usedMemory, limit: 15e6},
	},
	quick:    []string{"lastcall-http", "envoy"},
	duration: 5 * time.Second, rounds: 3, timed: true, takes: 8 * time.Second,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		files, err := b.makeTLS(true)
		if err != nil {
			return nil, err
		}
		v, err := b.load(ctx, t, bulkApp, place{TLS: files}, func(ctx context.Context, proxy *process, duration time.Duration) (load, error) {
			r, err := tlsload.Steady{Address: proxy.address(), Connections: mtlsConnections, Config: files.client(),
				Payload: 1024, Rate: mtlsRate, Duration: duration}.Run(ctx)
			return load{requests: r.Requests, elapsed: r.Took, p50: r.P50, p99: r.P99}, err
		})
		if err != nil {
			return nil, err
		}
		v[processors] = v[coreUsed]
		delete(v, coreUsed)
		return v, nil
	},
}

const (
	mtlsRate        = 1000
	mtlsConnections = 16
)
