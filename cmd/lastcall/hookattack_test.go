package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// busyTime is the processor time that a process has used.
func busyTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100 // USER_HZ
}

// Hooks that a caller with the pod's token sends again and again are one hook: they cost next to nothing, during the
// attack and after it.
func TestManyHooksCostLittle(t *testing.T) {
	cmd, _, status, _ := sidecarUnder(t, 1000, "--sidecar", "native")
	before := busyTime(t, cmd.Process.Pid)
	const rate, seconds = 20, 10
	var hooks sync.WaitGroup
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for range rate * seconds {
		hooks.Go(func() {
			resp, err := from("127.0.0.66").Get("http://" + status + "/wait/secret")
			if err == nil {
				err = resp.Body.Close()
			}
			if err != nil {
				t.Errorf("a hook: %v", err)
			}
		})
		<-tick.C
	}
	hooks.Wait()
	during := busyTime(t, cmd.Process.Pid) - before
	<-time.After(5 * time.Second) // the agent looks for the container that comes back
	after := busyTime(t, cmd.Process.Pid) - before - during
	t.Logf("%d hooks in %d s cost %v of CPU, and %v in the 5 s after them", rate*seconds, seconds, during, after)
	allowed := time.Second
	if hasRaceDetector() {
		allowed *= 5
	}
	if during > allowed || after > allowed/2 {
		t.Errorf("%v of CPU, and %v after the hooks: want at most %v and %v", during, after, allowed, allowed/2)
	}
}

// holdDrain begins a request that holds a drain for as long as its connection is open.
func holdDrain(t *testing.T, address string) net.Conn {
	t.Helper()
	busy, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Close() })
	_, _ = io.WriteString(busy, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
	return busy
}

// Hooks that wait shut out neither probes nor scrapes, nor the hooks of the pod's own containers.
func TestHeldHooksLeaveRoom(t *testing.T) {
	cmd, address, status, _ := sidecarUnder(t, 1000)
	busy := holdDrain(t, address)
	hold := func(address string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).Dial("tcp", status)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "GET /wait/secret HTTP/1.1\r\nHost: x\r\n\r\n")
		return c
	}
	first := hold("127.0.0.5")
	awaitMetric(t, status, `lastcall_drain_phase{phase="waiting"} 1`)
	for range 200 {
		hold("127.0.0.66")
	}
	own := exec.Command("lastcall", "wait", "--status-port", portOf(status))
	var output strings.Builder
	own.Stderr = &output
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	real := make(chan error, 1)
	go func() {
		resp, err := from("127.0.0.4").Get("http://" + status + "/wait/secret")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", resp.Status)
		}
		real <- err
	}()
	for range 20 { // each on a connection of its own
		for _, path := range []string{"/healthz/ready", "/metrics"} {
			resp, err := from("127.0.0.2").Get("http://" + status + path)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
	}
	_, _ = io.WriteString(busy, "0123456789")
	_ = busy.Close()
	if err := own.Wait(); err != nil {
		t.Errorf("lastcall wait: %v: %s", err, &output)
	}
	if err := <-real; err != nil {
		t.Errorf("the hook from the node: %v", err)
	}
	if b := make([]byte, 12); !readsAll(first, b) || string(b) != "HTTP/1.1 200" {
		t.Errorf("the hook that came first got %q", b)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
}

func readsAll(c net.Conn, b []byte) bool {
	_, err := io.ReadFull(c, b)
	return err == nil
}

// A hook of an agent that has stopped fails within the grace period: by its own environment if the agent has not taken
// the request, otherwise by the agent's.
func TestHookOfStoppedAgent(t *testing.T) {
	const grace = 4 * time.Second
	for _, tt := range []struct {
		name  string
		taken bool
		limit time.Duration
	}{
		{"before the request", false, 3 * time.Second}, // a quarter of the grace period is the margin
		{"after the request", true, grace - 250*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TERMINATION_GRACE_PERIOD_SECONDS", "4")
			cmd, address, status, _ := sidecarUnder(t, 1000)
			holdDrain(t, address)
			stop := func() {
				if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			hook := exec.Command("lastcall", "wait", "--status-port", portOf(status))
			var failure strings.Builder
			hook.Stderr = &failure
			if !tt.taken {
				stop()
			}
			began := time.Now()
			if err := hook.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.taken {
				awaitMetric(t, status, `lastcall_drain_phase{phase="waiting"} 1`)
				stop()
			}
			err := hook.Wait()
			took := time.Since(began)
			if err == nil || !strings.Contains(failure.String(), "the agent has not answered within "+tt.limit.String()) ||
				took < tt.limit || took > tt.limit+patience/4 {
				t.Errorf("%v after %v: %s", err, took, &failure)
			}
			t.Logf("the hook took %v", took)
		})
	}
}
