package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// hang sends a request that the app does not answer in time.
func (h *hot) hang() {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprint(conn, "GET /delay/60000 HTTP/1.1\r\nHost: x\r\n\r\n")
	h.logged("hotapp: request with a delay", 1)
}

// A cut decides the exit code of lastcall run, though the app ends by the SIGTERM that it gets.
func TestFailOnCut(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]int{"--fail-on-cut": 3, "--fail-on-cut=false": 0} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			h := startHot(t, "0", []string{"TERMINATION_GRACE_PERIOD_SECONDS=2"}, flag)
			h.hang()
			if err := h.first.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = h.first.Wait()
			h.logged("verdict=cut", 1)
			if code := h.first.ProcessState.ExitCode(); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			if _, err := os.Stat(h.pid); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pid file stays behind: %v", err)
			}
		})
	}
}

// A failure is the answer to the request, long before its time-out.
func TestHotRestartByPIDFileFails(t *testing.T) {
	t.Parallel()
	h := startHot(t, "0", nil)
	pid := h.pidServing()
	h.write(h.app, "exit")
	out, err := h.restart("--pid-file", h.pid, "--timeout", "0")
	if err == nil || !strings.Contains(out, "it has exited with code 7") {
		t.Errorf("hot-restart says %q, want why there is no successor", out)
	}
	if now := h.pidServing(); now != pid {
		t.Errorf("the pid file names %d, was %d", now, pid)
	}

	_, port, _ := net.SplitHostPort(freeLoopback(t))
	fixed := startHot(t, port, nil)
	if out, err := fixed.restart("--pid-file", fixed.pid, "--timeout", "0"); err == nil || !strings.Contains(out, "use port 0") {
		t.Errorf("hot-restart of an app on a fixed port says %q", out)
	}
}

// Each request is answered for a restart of its own: what a caller has changed before it asks is in force after.
func TestTwoHotRestartsByPIDFile(t *testing.T) {
	t.Parallel()
	h := startHot(t, "0", nil)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { h.mustRestart("--pid-file", h.pid) })
	}
	all.Wait()
	h.logged("the successor serves", 2)
}

// A predecessor that does not drain in time is no failure of the restart, and the caller learns which it was.
func TestHotRestartByPIDFileWhileTheOldProcessDrains(t *testing.T) {
	t.Parallel()
	h := startHot(t, "0", []string{"TERMINATION_GRACE_PERIOD_SECONDS=2"})
	h.hang()
	out, err := h.restart("--pid-file", h.pid, "--timeout", "2s")
	if err == nil || !strings.Contains(out, "serves, but process") {
		t.Errorf("hot-restart says %q", out)
	}
}
