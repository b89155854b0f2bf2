package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
)

// daemons are the node's programs, the first to start first.
var daemons = []string{
	"etcd", "containerd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet",
}

// daemon is a program of the node, which outlives this command. Its start time distinguishes it from a later process
// with the same pid.
type daemon struct {
	Name    string
	Pid     int
	Started string // field 22 of /proc/PID/stat, clock ticks since boot
}

// start starts a daemon under its name.
func (l layout) start(name, path string, args ...string) (*daemon, error) {
	if err := os.MkdirAll(l.path("logs"), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(l.path("logs", name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(path, args...)
	command.Args[0] = name
	command.Stdout, command.Stderr, command.Dir = log, log, l.dir
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = command.Wait() }() // so that one that ends early is seen to have ended
	return &daemon{name, command.Process.Pid, startTime(command.Process.Pid)}, nil
}

// running are the processes of a program that have a file of the cluster among their arguments.
func (l layout) running(programs ...string) (all []daemon) {
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range processes {
		line, _ := os.ReadFile(file) // it may have ended
		program, arguments, _ := strings.Cut(string(line), "\x00")
		name := filepath.Base(program)
		if slices.Contains(programs, name) && strings.Contains(arguments, l.dir+"/") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			all = append(all, daemon{name, pid, startTime(pid)})
		}
	}
	return all
}

// startTime of a process; empty when there is none.
func startTime(pid int) string {
	fields := process.Stat(pid)
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

func (d daemon) runs() bool { return d.Started != "" && startTime(d.Pid) == d.Started }

// end asks, then insists.
func (d daemon) end() {
	_ = syscall.Kill(d.Pid, syscall.SIGTERM)
	for _, limit := range []time.Duration{10 * time.Second, time.Minute} {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		err := poll.Until(ctx, 20*time.Millisecond, func() bool { return !d.runs() })
		cancel()
		if err == nil {
			return
		}
		say("%s (pid %d) does not end: SIGKILL", d.Name, d.Pid)
		_ = syscall.Kill(d.Pid, syscall.SIGKILL)
	}
}

// await asks again until done, or the daemon has ended, or ctx has.
func (l layout) await(ctx context.Context, d *daemon, done func(context.Context) error) error {
	var err error
	late := poll.Until(ctx, 50*time.Millisecond, func() bool {
		err = done(ctx)
		return err == nil || !d.runs()
	})
	if err == nil {
		return nil
	}
	log, _ := os.ReadFile(l.path("logs", d.Name+".log"))
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return fmt.Errorf("wait for %s (runs: %v): %w (%w); the end of its log:\n%s", d.Name, d.runs(), err, late,
		strings.Join(lines[max(0, len(lines)-15):], "\n"))
}
