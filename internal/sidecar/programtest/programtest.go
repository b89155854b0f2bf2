// Package programtest has what tests of whole programs share: their scripts, a stalled reader of their output, how much
// memory they have taken, their end by SIGTERM.
package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Build builds the program in the working folder without the race detector, whose memory would be measured otherwise,
// and returns its path.
func Build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-race=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// Peak is how many bytes a running program has had resident at most (Linux).
func Peak(t *testing.T, program *exec.Cmd) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", program.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmHWM in %s", text)
	}
	kilobytes, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// Terminate ends a program with SIGTERM and waits until it has exited, with code 0. exited receives what its Wait
// returns.
func Terminate(t *testing.T, program *exec.Cmd, exited <-chan error) {
	t.Helper()
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("exited with %v", err)
		}
	case <-time.After(2 * time.Minute): // longer than any grace period in these tests
		t.Fatal("still running two minutes after SIGTERM")
	}
}

// Quantile returns the q-quantile of all, which must not be empty.
func Quantile(all []time.Duration, q float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// Closed is a channel that is closed.
func Closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
