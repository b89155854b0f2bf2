package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/peers"
)

// machine describes what was measured on, in one line.
func machine() string {
	parts := []string{firstMatch("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`), fmt.Sprintf("%d cores", runtime.NumCPU())}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		parts = append(parts, "Linux "+strings.TrimSpace(string(kernel)))
	}
	parts = append(parts, runtime.Version())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		// Others' work on the machine is the first thing to look for behind odd numbers.
		parts = append(parts, "load average before: "+strings.Fields(string(load))[0])
	}
	return strings.Join(parts, ", ")
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

// versions asks each program that takes part for its version; wrk, which all need, comes last.
func versions(ctx context.Context, b *bench) string {
	var all []string
	asked := map[string]bool{}
	for _, s := range append(append([]subject{}, b.subjects...), backend, subject{peer: "wrk"}) {
		name, path := s.peer, b.programs[s.name]
		switch {
		case s.command != nil && s.peer == "":
			name = "lastcall"
		case name == "":
			continue
		case path == "":
			path, _ = peers.Find(name)
		}
		if !asked[name] {
			asked[name] = true
			all = append(all, name+" "+version(ctx, name, path))
		}
	}
	return strings.Join(all, ", ")
}

// askVersion is how each program is asked for its version.
var askVersion = map[string]string{"lastcall": "version", "envoy": "--version", "haproxy": "-v", "nginx": "-v", "wrk": "-v"}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+[-+\w]*`)

func version(ctx context.Context, name, path string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// wrk says its version and then fails with its usage: only what is said counts.
	said, _ := exec.CommandContext(ctx, path, askVersion[name]).CombinedOutput()
	if name == "lastcall" {
		return strings.TrimSpace(string(said))
	}
	if number := versionNumber.Find(said); number != nil {
		return string(number)
	}
	return "of unknown version"
}
