package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// h2load loads the address from one thread in HTTP/2. A request that is not answered with 2xx is an error.
func h2load(ctx context.Context, program, url string, duration time.Duration) (load, error) {
	out, err := output(exec.CommandContext(ctx, program, "--threads=1", fmt.Sprintf("--clients=%d", http2Connections),
		fmt.Sprintf("--max-concurrent-streams=%d", http2Streams),
		fmt.Sprintf("--duration=%ds", int(duration.Seconds())), url))
	if err != nil {
		return load{}, err
	}
	return parseH2load(out, duration)
}

var (
	h2loadCounts = regexp.MustCompile(`(?m)^requests: \d+ total, \d+ started, ` +
		`(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout$`)
	h2loadLatency = regexp.MustCompile(`(?m)^time for request:\s+\S+\s+\S+\s+(\S+)`)
)

// parseH2load reads the summary of h2load; the duration of a load by time stands nowhere in it.
func parseH2load(out string, duration time.Duration) (load, error) {
	counts, latency := h2loadCounts.FindStringSubmatch(out), h2loadLatency.FindStringSubmatch(out)
	if counts == nil || latency == nil {
		return load{}, fmt.Errorf("read h2load's output: no counts or no latency in\n%s", out)
	}
	if counts[1] != counts[2] || counts[3] != "0" || counts[4] != "0" || counts[5] != "0" {
		return load{}, fmt.Errorf("requests were lost under load: %s", strings.TrimSpace(counts[0]))
	}
	requests, err := strconv.Atoi(counts[2])
	if err != nil || requests == 0 {
		return load{}, fmt.Errorf("read h2load's output: no requests in\n%s", out)
	}
	mean, err := time.ParseDuration(latency[1])
	if err != nil {
		return load{}, fmt.Errorf("read h2load's latency: %w", err)
	}
	return load{requests: requests, elapsed: duration, mean: mean}, nil
}
