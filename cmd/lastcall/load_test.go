package main

import (
	"context"
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

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// A pod's loopback interface need not have 127.0.0.1. An address without a host is IPv4
// and IPv6 all the same, and the commands that ask the agent find it.
func TestPodWithout127001(t *testing.T) {
	n := nettest.New(t)
	pod := n.Pod
	pod.RemoveAddress(t, "lo", "127.0.0.1/8")
	nettest.Serve(t, pod.Listen(t, "tcp", "[::1]:8080"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "app") }))

	agent := exec.Command("lastcall", "agent", "--inbound", ":8000=[::1]:8080", "--inbound", "[::]:8001=[::1]:8080", "--admin-address", "off", "--termination-log", "")
	agent.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms")
	agent.Stderr = os.Stderr
	must.Do(t, pod.Start(agent))
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	t.Cleanup(func() { _ = agent.Process.Kill() })

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	get := func(address, path string) (int, string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return n.Client.Dial(ctx, network, address)
		}}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		must.Do(t, err)
		resp, err := client.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	polltest.Eventually(t, "the agent is ready", func() bool {
		code, _ := get(pod.TCP6(15020), "/healthz/ready")
		return code == http.StatusOK
	})
	if code, body := get(pod.TCP4(15020), "/healthz/ready"); code != http.StatusOK {
		t.Errorf("the status server on IPv4: %d %s", code, body)
	}
	for _, address := range []string{pod.TCP4(8000), pod.TCP6(8000), pod.TCP4(8001), pod.TCP6(8001)} {
		if code, body := get(address, "/"); code != http.StatusOK || body != "app" {
			t.Errorf("%s: %d %s", address, code, body)
		}
	}
	wait := exec.CommandContext(ctx, "lastcall", "wait")
	wait.Stderr = os.Stderr
	must.Do(t, pod.Start(wait))
	if err := wait.Wait(); err != nil {
		t.Errorf("lastcall wait: %v", err)
	}
	_ = agent.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("lastcall agent: %v", err)
		}
	case <-time.After(patience):
		t.Error("lastcall agent still runs after lastcall wait and SIGTERM")
	}
}

// The hook of Envoy's container waits until an app's container has ended, in which the app's hook has left a process.
// No Envoy runs here: both hooks watch a port.
func TestHooksOfAPodFindEachOther(t *testing.T) {
	t.Parallel()
	pod, ended := nettest.New(t).Pod, filepath.Join(t.TempDir(), "ended")
	hook := []string{programtest.Build(t), "wait", "--envoy", "127.0.0.1:15000", "--ports", "8080", "--timeout", "4s",
		"--minimum-drain", "0s", "--quiet-time", "0s"}
	app := exec.Command("unshare", "-p", "-f", "--kill-child", "sh", "-c", strings.Join(hook, " ")+" && sleep 1 && touch "+ended)
	sidecar := exec.Command(hook[0], append(hook[1:], "--sidecar")...)
	var log logstest.Buffer
	for _, cmd := range []*exec.Cmd{app, sidecar} {
		cmd.Stdout, cmd.Stderr = &log, &log
		must.Do(t, pod.Start(cmd))
	}
	if err := sidecar.Wait(); err != nil {
		t.Errorf("the hook of Envoy's container: %v", err)
	}
	if _, err := os.Stat(ended); err != nil || !strings.Contains(log.String(), `msg="app exited" containers=1`) {
		t.Errorf("it has not waited for the app's container: %v\n%s", err, &log)
	}
	if err := app.Wait(); err != nil {
		t.Errorf("the app's container: %v\n%s", err, &log)
	}
}
