package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// load has the counts of a tool: wrk reports p50 and p99, h2load the mean.
type load struct {
	requests       int
	elapsed        time.Duration
	p50, p99, mean time.Duration
}

func (l load) perSecond() float64 { return float64(l.requests) / l.elapsed.Seconds() }

// wrk requests a path from one thread, each request with the header lines. A response other than 2xx, a refused or
// broken connection or a timeout is an error: a proxy that loses requests is not to be called fast.
func (b *bench) wrk(path string, connections int, headers ...string) runLoad {
	return func(ctx context.Context, proxy *process, duration time.Duration) (load, error) {
		args := []string{"-t1", "--latency",
			fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%ds", int(duration.Seconds()))}
		for _, line := range headers {
			args = append(args, "-H", line)
		}
		out, err := output(exec.CommandContext(ctx, b.programs["wrk"], append(args, proxy.url(path))...))
		if err != nil {
			return load{}, err
		}
		return parseWrk(out)
	}
}

// output runs a tool.
func output(command *exec.Cmd) (string, error) {
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("run %s: %w\n%s", filepath.Base(command.Path), err, &complaint)
	}
	return string(out), err
}

var (
	wrkTotal   = regexp.MustCompile(`(?m)^\s*(\d+) requests in ([\d.]+(?:us|ms|s|m|h)),`)
	wrkLatency = regexp.MustCompile(`(?m)^\s*(50|99)%\s+([\d.]+(?:us|ms|s|m|h))$`)
	wrkErrors  = regexp.MustCompile(`(?m)^\s*(Socket errors:.*|Non-2xx or 3xx responses:.*)$`)
)

// parseWrk reads the output of wrk --latency.
func parseWrk(out string) (load, error) {
	if lost := wrkErrors.FindAllString(out, -1); lost != nil {
		return load{}, fmt.Errorf("requests were lost under load: %s", strings.TrimSpace(strings.Join(lost, "; ")))
	}
	var l load
	total := wrkTotal.FindStringSubmatch(out)
	if total == nil {
		return load{}, fmt.Errorf("read wrk's output: no total in\n%s", out)
	}
	var err error
	if l.requests, err = strconv.Atoi(total[1]); err != nil {
		return load{}, fmt.Errorf("read wrk's total: %w", err)
	}
	if l.elapsed, err = time.ParseDuration(total[2]); err != nil {
		return load{}, fmt.Errorf("read wrk's total: %w", err)
	}
	for _, row := range wrkLatency.FindAllStringSubmatch(out, -1) {
		latency, err := time.ParseDuration(row[2])
		if err != nil {
			return load{}, fmt.Errorf("read wrk's latency: %w", err)
		}
		if row[1] == "50" {
			l.p50 = latency
		} else {
			l.p99 = latency
		}
	}
	if l.requests == 0 || l.elapsed == 0 || l.p50 == 0 || l.p99 == 0 {
		return load{}, fmt.Errorf("read wrk's output: requests, time or latency lacking in\n%s", out)
	}
	return l, nil
}
