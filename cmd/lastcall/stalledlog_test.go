package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// With nothing that reads its log, its access log and its app's or Envoy's output,
// lastcall serves, drains at SIGTERM, finishes the requests in flight and ends.
func TestStalledLogReader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args func(t *testing.T, address, app string) []string
		env  []string
	}{
		{"run", func(_ *testing.T, address, _ string) []string {
			return []string{"run", "--inbound", address + "=127.0.0.1:0,protocol=http", "--", "sh", "-c", "exec stopapp {port} >/dev/null 2>&1"}
		}, nil},
		{"agent", func(_ *testing.T, address, app string) []string {
			return []string{"agent", "--admin-address", "off", "--inbound", address + "=" + app + ",protocol=http"}
		}, nil},
		{"agent with FIFOs that nothing reads", func(t *testing.T, address, app string) []string {
			dir := t.TempDir()
			for _, name := range []string{"access", "message"} {
				must.Do(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
			}
			return []string{"agent", "--admin-address", "off", "--inbound", address + "=" + app + ",protocol=http",
				"--access-log", filepath.Join(dir, "access"), "--termination-log", filepath.Join(dir, "message")}
		}, nil},
		{"agent with Envoy", func(t *testing.T, address, app string) []string {
			return []string{"agent", "--proxy", "envoy", "--envoy-path", peers.Need(t, "envoy"), "--envoy-log-level", "debug",
				"--inbound", address + "=" + app + ",protocol=http"}
		}, []string{`PROXY_CONFIG={"proxyAdminPort":` + portOf(freeLoopback(t)) + `}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			app := httptest.NewServer(http.HandlerFunc(serveSlowly))
			defer app.Close()
			address, status, full := freeLoopback(t), freeLoopback(t), programtest.FullPipe(t)
			args := tt.args(t, address, app.Listener.Addr().String())
			flags := []string{"--status-address", "127.0.0.1", "--status-port", portOf(status), "--termination-log", "", "--access-log", "-"}
			cmd := exec.Command("lastcall", append([]string{args[0]}, append(flags, args[1:]...)...)...)
			cmd.Env = append(append(os.Environ(), tt.env...), "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms", "TERMINATION_GRACE_PERIOD_SECONDS=600")
			cmd.Stdout, cmd.Stderr = full, full
			endsWithRequest(t, cmd, address, status)
		})
	}
}

// endsWithRequest starts lastcall and stops it while a request is in flight, which begins after the steps before.
func endsWithRequest(t *testing.T, cmd *exec.Cmd, address, status string, before ...func()) {
	t.Helper()
	ended := startProgram(t, cmd)
	polltest.Eventually(t, "the app serves", func() bool {
		resp, err := http.Get("http://" + address + "/")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	for _, step := range before {
		step()
	}
	answer := inFlight(t, status, "http://"+address+"/slow")
	must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
	if got := <-answer; got != "served" {
		t.Errorf("the request in flight got %q", got)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("lastcall still runs")
	}
	if !cmd.ProcessState.Exited() {
		t.Errorf("lastcall ended with %v", cmd.ProcessState)
	}
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// patience is longer than anything takes on a busy machine.
const patience = time.Minute

// startProgram starts a program that ends with the test, which shows its log if it fails; ended is closed when it has
// ended.
func startProgram(t *testing.T, cmd *exec.Cmd) (ended <-chan struct{}) {
	t.Helper()
	must.Do(t, cmd.Start())
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if log, ok := cmd.Stderr.(*strings.Builder); ok && t.Failed() {
			t.Log(log)
		}
	})
	return done
}

// awaitReady waits until the agent with this status server is ready.
func awaitReady(t *testing.T, status string) {
	t.Helper()
	polltest.Eventually(t, "the agent is ready", func() bool { return textOf("http://"+status+"/healthz/ready") != "" })
}

// awaitMetric waits until the agent with this status server has the metric.
func awaitMetric(t *testing.T, status, metric string) {
	t.Helper()
	polltest.Eventually(t, metric, func() bool { return strings.Contains(textOf("http://"+status+"/metrics"), metric) })
}

// inFlight sends a request that takes its time, and returns when it is in flight. A busy machine may see only a later one.
func inFlight(t *testing.T, status, url string) (answer chan string) {
	t.Helper()
	const metric = `lastcall_connections{state="busy"} 1`
	polltest.Eventually(t, metric, func() bool {
		if answer == nil || len(answer) > 0 {
			answer = make(chan string, 1)
			go func(answer chan<- string) { answer <- textOf(url) }(answer)
		}
		return strings.Contains(textOf("http://"+status+"/metrics"), metric)
	})
	return answer
}

// textOf returns the response of a URL; empty for an error.
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
