package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// Before its app listens, run with Envoy refuses connections, as the app itself would: no client gets a 503. A signal
// in that time ends the app in its own way.
func TestEnvoyWaitsForApp(t *testing.T) {
	t.Parallel()
	envoy := peers.Need(t, "envoy")
	for name, listens := range map[string]bool{"the app listens": true, "stopped before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, address, status, log := t.TempDir(), freeLoopback(t), freeLoopback(t), &logstest.Buffer{}
			app := `trap "echo saved >$DIR/state; exit 0" TERM; echo >$DIR/runs; until [ -e $DIR/go ]; do sleep 0.02; done
				"$PYTHON" -m http.server --bind 127.0.0.1 {port} & wait; kill $!`
			cmd := exec.Command("lastcall", "run", "--proxy", "envoy", "--envoy-path", envoy, "--termination-log", "",
				"--status-address", "127.0.0.1", "--status-port", portOf(status),
				"--inbound", address+"=127.0.0.1:0,protocol=http", "--", "sh", "-c", app)
			cmd.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms",
				`PROXY_CONFIG={"proxyAdminPort":`+portOf(freeLoopback(t))+`}`, "DIR="+dir, "PYTHON="+peers.Need(t, "python"))
			cmd.Stdout, cmd.Stderr = log, log
			must.Do(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			polltest.Eventually(t, "the app runs", func() bool { _, err := os.Stat(filepath.Join(dir, "runs")); return err == nil }, log)
			// By now an Envoy that does not wait has been started: its listener opens, or it logs that it waits.
			polltest.Eventually(t, "Envoy waits, or serves", func() bool {
				_, err := http.Get("http://" + address)
				return err == nil || strings.Contains(log.String(), "Envoy starts when the app accepts connections")
			}, log)
			get := func() bool { // whether the connection was refused
				resp, err := http.Get("http://" + address)
				if err != nil {
					if !errors.Is(err, syscall.ECONNREFUSED) {
						t.Error(err)
					}
					return true
				}
				defer resp.Body.Close()
				if _, _ = io.Copy(io.Discard, resp.Body); resp.StatusCode != http.StatusOK {
					t.Errorf("status %d\n%s", resp.StatusCode, log)
				}
				return false
			}
			if !get() {
				t.Errorf("served before the app listens\n%s", log)
			}
			if listens {
				_ = os.WriteFile(filepath.Join(dir, "go"), nil, 0o644)
				polltest.Eventually(t, "Envoy serves", func() bool { return !get() }, log)
			}
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, log)
			}
			if b, _ := os.ReadFile(filepath.Join(dir, "state")); string(b) != "saved\n" {
				t.Errorf("the app has saved %q\n%s", b, log)
			}
		})
	}
}

// A stop signal ends an agent whose Envoy does not come up, however many hooks have requested the drain before.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	fake := filepath.Join(t.TempDir(), "envoy")
	programtest.Write(t, fake, []byte("#!/bin/sh\nexec sleep 1000\n"))
	status, log := freeLoopback(t), &logstest.Buffer{}
	cmd := exec.Command("lastcall", "agent", "--proxy", "envoy", "--envoy-path", fake, "--termination-log", "",
		"--status-address", "127.0.0.1", "--status-port", portOf(status), "--inbound", freeLoopback(t)+"=127.0.0.1:1")
	cmd.Env = append(os.Environ(), `PROXY_CONFIG={"proxyAdminPort":`+portOf(freeLoopback(t))+`}`)
	cmd.Stdout, cmd.Stderr = log, log
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	polltest.Eventually(t, "the status port answers", func() bool {
		resp, err := http.Get("http://" + status + "/healthz/ready")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}, log)
	for i := range 40 {
		conn, err := net.Dial("tcp", status)
		must.Do(t, err)
		_, _ = io.WriteString(conn, "POST /wait?ports="+strconv.Itoa(8000+i)+" HTTP/1.1\r\nHost: localhost\r\nLastcall-Limit: 1\r\n\r\n")
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(line, "102") { // the hook waits
			t.Fatalf("%q, %v", line, err)
		}
		defer conn.Close()
	}
	must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v\n%s", err, log)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("the agent continues to start\n%s", log)
	}
}
