package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

// hang sends a request that the app does not answer in time.
func (h *hot) hang() net.Conn {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprint(conn, "GET /delay/60000 HTTP/1.1\r\nHost: x\r\n\r\n")
	h.logged("hotapp: request with a delay", 1)
	return conn
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
