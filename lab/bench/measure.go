package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// loaded loads a proxy for loadTime.
func loaded(ctx context.Context, l load, proxy *process) (values, error) {
	idle, err := proxy.idle()
	if err != nil {
		return nil, err
	}
	// The warm-up fills pools and opens the connections to the app.
	if _, err := l.run(ctx, proxy); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	before, err1 := proxy.usage()
	result, err2 := l.run(ctx, proxy)
	after, err3 := proxy.usage()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	v := result.latencies
	v[requestRate] = result.requests / result.seconds
	if proxy.command != nil {
		used := after.cpu - before.cpu
		v[cpuPerRequest], v[coreUsed], v[idleMemory] = used/result.requests, used/result.seconds, idle.resident
	}
	return v, nil
}

// tool makes a load from one thread, and prints a summary.
type tool struct {
	name string
	// lost finds requests without a 2xx response, refused or broken connections and timeouts: a proxy that loses
	// requests is not to be called fast.
	lost *regexp.Regexp
	// total finds the requests and, in wrk's output, the time.
	total     *regexp.Regexp
	latencies map[*metric]*regexp.Regexp
}

var (
	wrk = tool{
		name:  "wrk",
		lost:  regexp.MustCompile(`(?m)^\s*(Socket errors:.*|Non-2xx or 3xx responses:.*)$`),
		total: regexp.MustCompile(`(?m)^\s*(\d+) requests in ([\d.]+[a-z]+),`),
		latencies: map[*metric]*regexp.Regexp{
			p50: regexp.MustCompile(`(?m)^\s*50%\s+(\S+)$`), p99: regexp.MustCompile(`(?m)^\s*99%\s+(\S+)$`),
		},
	}
	h2load = tool{
		name:      "h2load",
		lost:      regexp.MustCompile(`(?m)^requests: .* ([1-9]\d* failed|[1-9]\d* errored|[1-9]\d* timeout)\b.*$`),
		total:     regexp.MustCompile(`(?m)^requests: .* (\d+) succeeded()`),
		latencies: map[*metric]*regexp.Regexp{mean: regexp.MustCompile(`(?m)^time for request:\s+\S+\s+\S+\s+(\S+)`)},
	}
)

// result has the counts of a tool.
type result struct {
	requests, seconds float64
	latencies         values
}

// run loads the proxy once.
func (l load) run(ctx context.Context, proxy *process) (result, error) {
	seconds := int(loadTime.Seconds())
	from, args := wrk, []string{"-t1", "--latency", fmt.Sprintf("-c%d", l.clients), fmt.Sprintf("-d%ds", seconds)}
	if l.close {
		args = append(args, "-H", "Connection: close")
	}
	if l.http2 {
		from, args = h2load, []string{"--threads=1", fmt.Sprintf("--clients=%d", l.clients),
			fmt.Sprintf("--max-concurrent-streams=%d", http2Streams), fmt.Sprintf("--duration=%ds", seconds)}
	}
	program, err := peers.Find(from.name)
	if err != nil {
		return result{}, err
	}
	command := exec.CommandContext(ctx, program, append(args, proxy.url(l.path))...)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return result{}, fmt.Errorf("run %s: %w\n%s", from.name, err, &complaint)
	}
	return from.parse(string(out))
}

// parse reads the summary.
func (t tool) parse(out string) (result, error) {
	if lost := t.lost.FindString(out); lost != "" {
		return result{}, fmt.Errorf("requests were lost under load: %s", lost)
	}
	lacking := fmt.Errorf("read the output of %s: requests, time or a latency is lacking\n%s", t.name, out)
	total := t.total.FindStringSubmatch(out)
	if total == nil {
		return result{}, lacking
	}
	requests, err1 := strconv.ParseFloat(total[1], 64)
	lasted, err2 := time.ParseDuration(cmp.Or(total[2], loadTime.String()))
	r := result{requests: requests, seconds: lasted.Seconds(), latencies: values{}}
	for m, pattern := range t.latencies {
		if found := pattern.FindStringSubmatch(out); found != nil {
			latency, err := time.ParseDuration(found[1])
			r.latencies[m], err2 = latency.Seconds(), errors.Join(err2, err)
		}
	}
	err := errors.Join(err1, err2)
	if err != nil || requests == 0 || lasted == 0 || len(r.latencies) < len(t.latencies) {
		return result{}, errors.Join(lacking, err)
	}
	return r, nil
}

// hold measures the memory of idle connections.
func hold(ctx context.Context, l load, proxy *process) (values, error) {
	before, err := proxy.idle()
	if err != nil {
		return nil, err
	}
	for i := range l.clients {
		conn, err := net.Dial("tcp", proxy.address())
		if err != nil {
			return nil, fmt.Errorf("open connection %d: %w", i, err)
		}
		defer conn.Close()
		if err := get(conn); err != nil {
			return nil, fmt.Errorf("use connection %d: %w", i, err)
		}
	}
	// Collectors and pools come to rest.
	if err := poll.Pause(ctx, settle); err != nil {
		return nil, err
	}
	after, err := proxy.usage()
	count := float64(l.clients)
	return values{idleMemory: before.resident, heldMemory: after.resident,
		perPair: (after.resident - before.resident) / count, socketsEach: (after.open - before.open) / count}, err
}

// serve measures how long it takes from exec until clients are served.
func serve(_ context.Context, _ load, proxy *process) (values, error) {
	conn, err := proxy.knock()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	connected := time.Since(proxy.began)
	if err := get(conn); err != nil {
		return nil, err
	}
	return values{toConnection: connected.Seconds(), toAnswer: time.Since(proxy.began).Seconds()}, nil
}

// knock tries to connect ten times a millisecond until it succeeds.
func (p *process) knock() (net.Conn, error) {
	for {
		conn, err := net.Dial("tcp", p.address())
		if err == nil {
			return conn, nil
		}
		if time.Since(p.began) > readyTimeout || p.running.Err() != nil {
			return nil, errors.Join(err, context.Cause(p.running))
		}
		// Go's own timers may be a millisecond late on an idle core.
		pause := unix.NsecToTimespec((50 * time.Microsecond).Nanoseconds())
		_ = unix.Nanosleep(&pause, nil)
	}
}

// get makes one request, and leaves the connection open.
func get(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET /get HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	if err != nil {
		return fmt.Errorf("read a response: %w", err)
	}
	if response.StatusCode != http.StatusOK || response.Close {
		return fmt.Errorf("read a response: %s, close %t", response.Status, response.Close)
	}
	return nil
}
