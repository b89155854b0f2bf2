package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fullPipe is a pipe that takes not a byte more, as one whose reader has stalled.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{4096, 1} {
		for err == nil {
			_, err = w.Write(make([]byte, size))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		err = nil
		_ = w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	}
	_ = w.Fd() // blocking for the program, as a container runtime's is
	return w
}

// With nothing that reads its log, lastcall run serves, drains at SIGTERM, finishes
// what is in flight and ends.
func TestStalledLogReader(t *testing.T) {
	full := fullPipe(t)
	address, status, app := freeLoopback(t), freeLoopback(t), filepath.Join(t.TempDir(), "app")
	if err := os.WriteFile(app, []byte("serve"), 0o600); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(status)
	cmd := exec.Command("lastcall", "run", "--status-address", host, "--status-port", port, "--termination-log", "", "--access-log", "-",
		"--inbound", address+"=127.0.0.1:0,protocol=http", "--", "sh", "-c", "exec hotapp {port} "+app+" >/dev/null 2>&1")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms", "TERMINATION_GRACE_PERIOD_SECONDS=600")
	cmd.Stdout, cmd.Stderr = full, full
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })

	eventually(t, "the app serves", func() bool { return textOf("http://"+address+"/") != "" })
	answer := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + address + "/delay/1500")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		answer <- err
	}()
	eventually(t, "a request is in flight", func() bool {
		return strings.Contains(textOf("http://"+status+"/metrics"), `lastcall_connections{state="busy"} 1`)
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	eventually(t, "lastcall run has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if !cmd.ProcessState.Exited() {
		t.Errorf("lastcall run ended with %v", cmd.ProcessState)
	}
}

// patience is longer than anything takes on a busy machine.
const patience = time.Minute

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// textOf is what a URL answers; empty for an error.
func textOf(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(b)
}
