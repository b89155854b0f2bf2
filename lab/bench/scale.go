package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/lab/bench/open"
)

var (
	kernelEach = &metric{title: "kernel memory for each connection and its sockets", show: kilobytes}
	vcpu       = &metric{title: "processor time each second, of a core", show: percent}
)

// scaled are the proxies of the curves: a picture with more curves cannot be read.
var scaled = []string{"lastcall-http", "envoy", "haproxy-http", "nginx"}

// Three tables of curves, each with a picture: of idle connections, of busy ones, and of requests/s.
var (
	idleTable = &table{
		name: "idle", what: "memory against idle connections", apps: []subject{backend}, ownApps: true, many: true,
		how: func(*bench) string {
			return fmt.Sprintf("Idle keep-alive connections, each of which has made one request, %s after the last one. The kernel's memory is that of its objects "+
				"for sockets (/proc/slabinfo), of client and app too. This machine allows %s open files for each process, and a connection "+
				"can take two.", settle, whole(float64(fileLimit())))
		},
		subjects: scaled, quick: scaled[:1], cases: upTo(fileLimit()/2-500, 1000, 4000, 9000, 25000), quickCases: []string{"1,000", "4,000"}, curve: true, axis: "idle connections",
		columns: []column{middle(withThem).titled("resident memory"), middle(kernelEach)},
		rounds:  1, takes: 5 * time.Second,
		turn: idleTurn,
		picture: func(o *outcome) chart {
			return o.chart("Memory against idle connections", "resident memory, MB", withThem, 1e-6, false)
		},
		model: withThem, modelAt: 100_000,
	}
	busyTable = &table{
		name: "busy", what: "processor time and memory against busy connections", apps: []subject{backend}, ownApps: true, many: true, timed: true,
		how: func(*bench) string {
			return fmt.Sprintf("HTTP/1.1 keep-alive connections, all of them in use: %s requests/s in all, evenly spaced, on one connection after the other. "+
				"A latency counts from when its request was due.", whole(busyRate))
		},
		subjects: scaled, quick: scaled[:1], cases: upTo(fileLimit()/2-500, 100, 1000, 4000, 9000, 25000), quickCases: []string{"100", "1,000"}, curve: true, axis: "busy connections",
		columns: []column{middle(cpuPerRequest), middle(p99), middle(usedMemory)},
		rounds:  1, takes: 3 * time.Second,
		turn: func(ctx context.Context, b *bench, t turn) (values, error) {
			return b.atRate(ctx, t, t.count(), busyRate)
		},
		picture: func(o *outcome) chart {
			return o.chart("Cost of a request against busy connections", "processor time for each request, µs", cpuPerRequest, 1e6, true)
		},
	}
	rateTable = &table{
		name: "rate", what: "processor time against requests/s", apps: []subject{backend}, ownApps: true, timed: true,
		how: func(b *bench) string {
			return fmt.Sprintf("HTTP/1.1, %d kept connections, requests evenly spaced at a rate that does not wait for answers. "+
				"More than 100 %% is what a rate would take that the proxy cannot keep up with.", b.connections)
		},
		subjects: scaled, quick: scaled[:1], cases: upTo(math.MaxInt, 2000, 5000, 10000, 15000, 30000), quickCases: []string{"2,000", "10,000"}, curve: true, axis: "requests/s",
		without: func(kase string, s subject) bool { return s.name == "envoy" && kase == "30,000" },
		columns: []column{middle(vcpu), middle(cpuPerRequest), middle(p99)},
		rounds:  1, takes: 2 * time.Second,
		turn: func(ctx context.Context, b *bench, t turn) (values, error) {
			return b.atRate(ctx, t, b.connections, float64(t.count()))
		},
		picture: func(o *outcome) chart {
			return o.chart("Processor time against requests/s", "processor time each second, % of a core", vcpu, 100, false)
		},
	}
)

// fileLimit is how many files this process, and each that it starts, may have open.
func fileLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Max, math.MaxInt32))
}

// upTo are those of the counts that are possible, as cases.
func upTo(most int, counts ...int) (cases []string) {
	for _, n := range counts {
		if n <= most {
			cases = append(cases, whole(float64(n)))
		}
	}
	return cases
}

// count is the number that a case of curves is.
func (t turn) count() int { return int(caseNumber(t.kase)) }

func caseNumber(kase string) float64 {
	n, _ := strconv.ParseFloat(strings.ReplaceAll(kase, ",", ""), 64) // it was made by upTo
	return n
}

func idleTurn(ctx context.Context, b *bench, t turn) (values, error) {
	before, readable := socketObjects()
	held, err := b.hold(ctx, t.subject, t.count(), nil)
	if err != nil {
		return nil, err
	}
	defer held.release()
	v := values{withThem: held.resident}
	if after, _ := socketObjects(); readable {
		v[kernelEach] = max(0, after-before) / float64(t.count())
	}
	return v, nil
}

// slabLine matches a line of /proc/slabinfo about a socket's objects: name, active objects, all, bytes of each (slabinfo(5)).
var slabLine = regexp.MustCompile(`(?m)^(?:TCP|sock_inode_cache|filp|eventpoll_epi) +(\d+) +\d+ +(\d+)`)

// socketObjects is the memory of the kernel's objects for sockets, in bytes, without the data in their queues. Only root
// may read it.
func socketObjects() (bytes float64, readable bool) {
	text, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		return 0, false
	}
	for _, found := range slabLine.FindAllSubmatch(text, -1) {
		count, _ := strconv.ParseFloat(string(found[1]), 64) // both are digits
		size, _ := strconv.ParseFloat(string(found[2]), 64)
		bytes += count * size
	}
	return bytes, true
}

// busyRate is small enough for each proxy at any number of connections.
const busyRate = 4000

// atRate makes so many requests a second on so many connections.
func (b *bench) atRate(ctx context.Context, t turn, connections int, rate float64) (values, error) {
	app, err := b.app(ctx, backend, place{Clients: connections + 100})
	if err != nil {
		return nil, err
	}
	defer app.stop()
	proxy, err := b.proxy(ctx, t.subject, app, place{Clients: connections + 100})
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	var before time.Duration
	o := open.Options{Port: proxy.port, Path: "/get", Connections: connections, Rate: rate, Duration: b.duration}
	o.Begin = func() (err error) {
		before, err = proxy.cpu()
		return err
	}
	peak := watchMemory(proxy)
	result, err := open.Run(ctx, o)
	memory := peak()
	if err != nil {
		return nil, err
	}
	after, err := proxy.cpu()
	each := (after - before).Seconds() / float64(result.Requests)
	return values{vcpu: each * rate, cpuPerRequest: each, p99: result.Percentile(99).Seconds(), usedMemory: float64(memory)}, err
}

// chart has a curve for each subject: the cases are x, the metric times the factor is y.
func (o *outcome) chart(title, y string, m *metric, factor float64, log bool) chart {
	c := chart{title: title, x: o.axis, y: y, log: log}
	for _, s := range o.subjects {
		points := [][2]float64{}
		for _, kase := range o.cases {
			if rounds := o.rounds(kase, s.name, m); len(rounds) > 0 {
				points = append(points, [2]float64{caseNumber(kase), median(rounds) * factor})
			}
		}
		if len(points) > 0 {
			c.curves = append(c.curves, curve{name: s.title, ours: s.ours, points: points})
		}
	}
	return c
}

// picturePath is where a table's picture is, next to the document's folder docs.
func (b *bench) picturePath(name string) string {
	return filepath.Join(filepath.Dir(b.file), "docs", "bench-"+name+".svg")
}

// modelLine extends the measured line of each subject to a number of connections that the machine does not allow.
func (o *outcome) modelLine() string {
	if len(o.cases) == 0 || caseNumber(o.cases[len(o.cases)-1]) >= o.modelAt {
		return ""
	}
	var each []string
	for _, s := range o.subjects {
		var points [][2]float64
		for _, kase := range o.cases {
			if rounds := o.rounds(kase, s.name, o.model); len(rounds) > 0 {
				points = append(points, [2]float64{caseNumber(kase), median(rounds)})
			}
		}
		if len(points) < 2 {
			continue
		}
		base, slope := line(points)
		off := slices.MaxFunc(points, func(p, q [2]float64) int {
			return int(math.Copysign(1, math.Abs(p[1]-base-slope*p[0])/p[1]-math.Abs(q[1]-base-slope*q[0])/q[1]))
		})
		each = append(each, fmt.Sprintf("%s %s (%s and %s for each; no measured point is further from the line than %s)", s.title,
			o.model.show(base+slope*o.modelAt), o.model.show(base), kilobytes(slope), fmt.Sprintf("%.1f %%", 100*math.Abs(off[1]-base-slope*off[0])/off[1])))
	}
	if len(each) == 0 {
		return ""
	}
	return fmt.Sprintf("**A model, not a measurement**: by the straight line through these points, %s %s would take: %s.", whole(o.modelAt), o.axis, strings.Join(each, "; "))
}

// line is the straight line of least squares.
func line(points [][2]float64) (base, slope float64) {
	var n, x, y, xx, xy float64
	for _, p := range points {
		n, x, y, xx, xy = n+1, x+p[0], y+p[1], xx+p[0]*p[0], xy+p[0]*p[1]
	}
	slope = (n*xy - x*y) / (n*xx - x*x)
	return (y - slope*x) / n, slope
}
