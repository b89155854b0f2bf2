package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/lab/bench/bulk"
)

const (
	bodyConnections = 8
	bodySize        = 10_000_000
)

// The directions in which large bodies are sent: in HTTP, and in TCP as one body without an end.
const (
	bodyDown   = "10 MB responses"
	bodyUp     = "10 MB uploads"
	streamDown = "A TCP stream without an end, to the client"
	streamUp   = "A TCP stream without an end, to the app"
)

var (
	gigabytes  = &metric{title: "GB/s", show: hundredths, more: true}
	cpuPerByte = &metric{title: "CPU seconds per GB", show: thousandths} // the figure is for a GB
)

var bodiesTable = &table{
	name: "bodies", what: "bodies of 10 MB either way, and streams without an end", apps: []subject{bulkApp},
	how: func(*bench) string {
		return fmt.Sprintf("%d connections; the app sends by sendfile(2), both ends discard what they receive within the kernel, so that the proxy is the limit. "+
			"HAProxy is measured as it is by default, which copies, and with `option splice-…`.", bodyConnections)
	},
	subjects: []string{"direct", "lastcall-http", "lastcall-tcp", "envoy", "haproxy-http", "haproxy-tcp", "haproxy-splice", "nginx", "caddy"},
	quick:    []string{"lastcall-http", "lastcall-tcp", "haproxy-splice"},
	cases:    []string{bodyDown, bodyUp, streamDown, streamUp},
	columns:  []column{middle(gigabytes), extent(gigabytes), middle(cpuPerByte), middle(coreUsed)},
	ratios:   []*metric{gigabytes, cpuPerByte},
	aims: []aim{
		{kase: bodyDown, ours: "lastcall-http", of: gigabytes, theirs: "haproxy-http", limit: 0.95},
		{kase: bodyUp, ours: "lastcall-http", of: gigabytes, theirs: "haproxy-http", limit: 0.95},
		{kase: streamDown, ours: "lastcall-tcp", of: gigabytes, theirs: "haproxy-tcp", limit: 0.95},
		{kase: streamUp, ours: "lastcall-tcp", of: gigabytes, theirs: "haproxy-tcp", limit: 0.95},
	},
	without: func(kase string, s subject) bool {
		return strings.Contains(kase, "stream") && !s.tcp && s.command != nil
	},
	duration: time.Second / 2,
	timed:    true, takes: 1200 * time.Millisecond,
	turn: func(ctx context.Context, b *bench, t turn) (values, error) {
		o := bulk.Options{Connections: bodyConnections, Size: bodySize, Upload: t.kase == bodyUp || t.kase == streamUp}
		if strings.Contains(t.kase, "stream") {
			o.Size = 1 << 50
		}
		return b.moveBodies(ctx, t, place{}, o)
	},
}

// moveBodies starts the subject, moves bodies through it for b.duration, and ends it.
func (b *bench) moveBodies(ctx context.Context, t turn, p place, o bulk.Options) (values, error) {
	proxy, err := b.proxy(ctx, t.subject, t.apps[bulkApp.name], p)
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	o.Address, o.Duration = proxy.address(), time.Second/2
	if _, err := bulk.Run(ctx, o); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	before, err := proxy.cpu()
	if err != nil {
		return nil, err
	}
	o.Duration = b.duration
	result, err := bulk.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	after, err := proxy.cpu()
	if err != nil {
		return nil, err
	}
	gb := float64(result.Bytes) / 1e9
	v := values{gigabytes: gb / result.Took.Seconds()}
	if t.command != nil {
		v[cpuPerByte], v[coreUsed] = (after-before).Seconds()/gb, (after-before).Seconds()/result.Took.Seconds()
	}
	return v, nil
}
