package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
)

// daemon is a program of the node, which outlives this command. Its start time distinguishes it from a later process
// with the same pid.
type daemon struct {
	Name    string
	Pid     int
	Started string // field 22 of /proc/PID/stat, clock ticks since boot
}

func (l layout) start(name string, args ...string) (*daemon, error) {
	if err := os.MkdirAll(l.path("logs"), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(l.path("logs", name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(args[0], args[1:]...)
	command.Stdout, command.Stderr, command.Dir = log, log, l.dir
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = command.Wait() }() // so that one that ends early is seen to have ended
	d := &daemon{Name: name, Pid: command.Process.Pid}
	d.Started = startTime(d.Pid)
	all, err := l.daemons()
	if err != nil {
		return nil, err
	}
	return d, l.remember(append(all, *d))
}

// daemons are those that were started and not ended, the first first.
func (l layout) daemons() ([]daemon, error) {
	text, err := os.ReadFile(l.path("daemons.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var all []daemon
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", l.path("daemons.json"), err)
	}
	return all, nil
}

func (l layout) remember(all []daemon) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return l.write("daemons.json", string(text))
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
func (l layout) await(ctx context.Context, what string, d *daemon, done func(context.Context) error) error {
	var err error
	late := poll.Until(ctx, 50*time.Millisecond, func() bool {
		err = done(ctx)
		return err == nil || d != nil && !d.runs()
	})
	logged := ""
	if d != nil {
		logged = fmt.Sprintf("; the end of %s's log:\n%s", d.Name, l.tail(d.Name))
	}
	switch {
	case err == nil:
		return nil
	case late == nil:
		return fmt.Errorf("wait for %s: %s has ended%s", what, d.Name, logged)
	}
	return fmt.Errorf("wait for %s: %w (%w)%s", what, err, late, logged)
}

func (l layout) tail(name string) string {
	text, err := os.ReadFile(l.path("logs", name+".log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
