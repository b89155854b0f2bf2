package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// load is requests from clients that each keep a connection, and use a fresh one for every third request. Nothing is
// retried: a client library's retries would hide what is lost.
type load struct {
	address string

	mu                          sync.Mutex // guards the fields below
	requests, fresh, reconnects int
	failures                    []error
}

// run sends perSecond requests a second by so many clients, until ctx ends, and waits for those in flight.
func (l *load) run(ctx context.Context, clients, perSecond int) {
	var all sync.WaitGroup
	defer all.Wait()
	for range clients {
		all.Go(func() {
			var kept *bufio.Reader // of the connection
			var conn net.Conn
			tick := time.NewTicker(time.Duration(clients) * time.Second / time.Duration(perSecond))
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				if n%3 == 0 {
					fresh, err := net.Dial("tcp", l.address)
					if err == nil {
						_, err = ask(fresh, bufio.NewReader(fresh))
						_ = fresh.Close()
					}
					l.note(true, false, err)
				} else {
					var closes bool
					var err error
					if kept == nil {
						if conn, err = net.Dial("tcp", l.address); err == nil {
							kept = bufio.NewReader(conn)
						}
					}
					if err == nil {
						closes, err = ask(conn, kept)
					}
					if kept != nil && (closes || err != nil) {
						_ = conn.Close()
						kept = nil
					}
					l.note(false, closes, err)
				}
				<-tick.C
			}
			if kept != nil {
				_ = conn.Close()
			}
		})
	}
}

func (l *load) note(isFresh, closes bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if isFresh {
		l.fresh++
	}
	if closes {
		l.reconnects++
	}
	if err != nil {
		l.failures = append(l.failures, err)
	}
}

// ask makes one request. After Connection: close the connection must end, with a FIN.
func ask(conn net.Conn, in *bufio.Reader) (closes bool, err error) {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		return false, err
	}
	resp, err := loadtest.Receive(in)
	switch {
	case err != nil:
		return false, err
	case resp.StatusCode != http.StatusOK:
		return false, fmt.Errorf("status %s", resp.Status)
	case !resp.Close:
		return false, nil
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return true, fmt.Errorf("after Connection: close: %w", err)
	}
	return true, nil
}

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
	if err := pod.Start(agent); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err := pod.Start(wait); err != nil {
		t.Fatal(err)
	}
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
		if err := pod.Start(cmd); err != nil {
			t.Fatal(err)
		}
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
