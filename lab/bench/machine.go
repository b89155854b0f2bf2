package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// machine describes the machine of the measurement, in one line.
func machine() string {
	parts := []string{firstMatch("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`), fmt.Sprintf("%d cores", cores()),
		"Linux " + firstMatch("/proc/sys/kernel/osrelease", `^([\d.]+)`)}
	parts = append(parts, runtime.Version())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		// Others' work on the machine is the first thing to look for behind odd numbers.
		parts = append(parts, "load average before: "+strings.Fields(string(load))[0])
	}
	return strings.Join(parts, ", ")
}

// cores is how many the machine has; this process may be bound to one of them.
func cores() int {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.NumCPU()
	}
	return strings.Count(string(text), "processor\t:")
}

func firstMatch(file, pattern string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		return "unknown"
	}
	return strings.TrimSpace(string(found[1]))
}

// sign makes the line with the command, time and machine of a table.
func (b *bench) sign(o *outcome, machine string) string {
	command := "make bench ARGS=" + o.name
	if len(b.given) > 0 || b.quick {
		command = fmt.Sprintf("make bench ARGS=%q", b.args)
	}
	rounds := "one round"
	if b.rounds > 1 {
		rounds = fmt.Sprintf("medians of %d alternating rounds", b.rounds)
	}
	if o.timed {
		rounds += " of " + b.duration.String()
	}
	return fmt.Sprintf("`%s`, %s; %s. %s.", command, time.Now().UTC().Format(time.DateOnly), rounds, machine)
}

// versions asks each program that took part for its version.
func (b *bench) versions(ctx context.Context, o *outcome) string {
	var all []string
	seen := map[string]bool{"": true}
	add := func(name, path string) {
		if !seen[name] {
			seen[name] = true
			all = append(all, name+" "+version(ctx, name, path))
		}
	}
	for _, s := range o.subjects {
		name := s.peer
		if s.rival != "" {
			name = "the other lastcall"
		} else if s.ours {
			name = "lastcall"
		}
		add(name, b.programs[s.name])
	}
	for _, s := range o.apps {
		add(s.peer, b.programs[s.name])
	}
	for _, tool := range o.tools {
		add(tool, b.tool(tool))
	}
	return strings.Join(all, ", ")
}

// versionArgument is the argument that prints a program's version, where it is not --version.
var versionArgument = map[string]string{"haproxy": "-v", "nginx": "-v", "wrk": "-v"}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+[-+\w]*`)

func version(ctx context.Context, name, path string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// wrk prints its version and then fails with its usage: only the output counts.
	output, _ := exec.CommandContext(ctx, path, cmp.Or(versionArgument[name], "--version")).CombinedOutput()
	if strings.HasSuffix(name, "lastcall") {
		return strings.TrimSpace(string(output))
	}
	if number := versionNumber.Find(output); number != nil {
		return string(number)
	}
	return "of unknown version"
}
