package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// machine describes the machine of the measurements, in one line. The document has it once, by hand.
func machine() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // this process may be bound to one core, and its runtime counts one
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", firstMatch("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`),
		strings.Count(string(info), "processor\t:"),
		firstMatch("/proc/sys/kernel/osrelease", `^([\d.]+)`), runtime.Version())
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

// sign makes the line with the command and time of a table, and the load average before.
func (b *bench) sign(o *outcome, before string) string {
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
	return fmt.Sprintf("`%s`, %s; %s, load %s.", command, time.Now().UTC().Format(time.DateOnly), rounds, before)
}

// version is that of each lastcall that took part. The document has the peers' once, by hand.
func (b *bench) version(ctx context.Context, o *outcome) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var all []string
	for _, s := range o.subjects {
		if s.ours {
			output, _ := exec.CommandContext(ctx, b.programs[s.name], "--version").CombinedOutput()
			all = append(all, "lastcall "+strings.TrimSpace(string(output)))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}
