package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
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

// sidecarUnder starts lastcall agent next to an app whose metrics are of this size.
func sidecarUnder(t *testing.T, scrapeSize int, args ...string) (cmd *exec.Cmd, address, status, admin string) {
	t.Helper()
	line := []byte("orders_total{customer=\"abcdefghijklmnopqrstuvwxyz\"} 123456789\n")
	says := bytes.Repeat(line, scrapeSize/len(line))
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(says) }))
	t.Cleanup(app.Close)
	_, appPort, _ := net.SplitHostPort(app.Listener.Addr().String())
	address, status, admin = freeLoopback(t), freeLoopback(t), freeLoopback(t)
	cmd = exec.Command("lastcall", "agent", "--status-port", portOf(status), "--admin-address", admin, "--termination-log", "",
		"--inbound", address+"=127.0.0.1:"+appPort+",protocol=http")
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms", "LASTCALL_HOOK_TOKEN=secret",
		`ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","path":"/metrics","port":"`+appPort+`"}`)
	startProgram(t, cmd)
	awaitReady(t, status)
	return cmd, address, status, admin
}

// from is a client at another address of the machine.
func from(source string) *http.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: patience}
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		}}}
}

// mostResident is the most memory that a process has taken so far, MiB.
func mostResident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb / 1024
}

// hasRaceDetector is true if memory use differs from that of a release build.
func hasRaceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// Scrapes that are never read, heads and bodies that never end, and connections
// without a word cost a bounded amount of memory. Another peer's scrape, a probe and
// a hook get through meanwhile, and the hook is answered at the end.
func TestStatusPortUnderAttack(t *testing.T) {
	cmd, _, status, _ := sidecarUnder(t, 5<<20)
	stop := make(chan struct{})
	for _, request := range []string{
		"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n",
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 900<<10),
		"POST /wait/none HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 500<<10),
		"",
	} {
		for range 60 {
			c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.66")}}).Dial("tcp", status)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.(*net.TCPConn).SetReadBuffer(4096)
			go func() { _, _ = io.WriteString(c, request); <-stop }()
		}
	}
	defer close(stop)

	hook := make(chan error, 1)
	go func() {
		resp, err := from("127.0.0.2").Get("http://" + status + "/healthz/ready")
		if err == nil {
			_ = resp.Body.Close()
			resp, err = from("127.0.0.2").Get("http://" + status + "/wait/secret")
		}
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("the hook's answer is %s", resp.Status)
		}
		hook <- err
	}()
	for range 3 {
		resp, err := from("127.0.0.3").Get("http://" + status + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n < 5<<20-100 {
			t.Errorf("a scrape of another peer: %d bytes, %v", n, err)
		}
		_ = resp.Body.Close()
	}
	most := mostResident(t, cmd.Process.Pid)
	t.Logf("the agent has taken %d MiB at most", most)
	if most > 64 && !hasRaceDetector() {
		t.Errorf("the agent has taken %d MiB, with 64 allowed", most)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-hook; err != nil {
		t.Errorf("the hook: %v", err)
	}
}

// No web page can end the agent or read its state; programs on the machine can.
func TestWebPagesAreRefused(t *testing.T) {
	_, _, status, admin := sidecarUnder(t, 1000)
	ask := func(method, url string, headers ...string) int {
		t.Helper()
		req, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
				req.Host = headers[i+1]
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%s %s %v: %v", method, url, headers, err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	foreign := [][]string{
		{"Origin", "http://evil.example"},
		{"Origin", "null"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Host", "evil.example:15020"},
		{"Host", "evil.example:15020", "Origin", "http://evil.example:15020", "Sec-Fetch-Site", "same-origin"},
		{"Host", "localhost.evil.example"},
	}
	for _, headers := range foreign {
		for _, at := range []struct{ method, url string }{
			{"POST", "http://" + status + "/quitquitquit"},
			{"POST", "http://" + status + "/drain"},
			{"POST", "http://" + status + "/wait"},
			{"POST", "http://" + status + "/hot-restart"},
			{"GET", "http://" + status + "/connections"},
			{"POST", "http://" + admin + "/quitquitquit"},
			{"POST", "http://" + admin + "/drain_listeners"},
			{"GET", "http://" + admin + "/connections"},
			{"GET", "http://" + admin + "/stats"},
		} {
			if code := ask(at.method, at.url, headers...); code != http.StatusForbidden {
				t.Errorf("%s %s with %q: %d", at.method, at.url, headers, code)
			}
		}
	}
	// Probes and scrapes come by any name, and a hook with the token, too.
	for _, url := range []string{"/healthz/ready", "/metrics"} {
		if code := ask("GET", "http://"+status+url, "Host", "app.default.svc:15020"); code != http.StatusOK {
			t.Errorf("GET %s by a name: %d", url, code)
		}
	}
	_, statusPort, _ := net.SplitHostPort(status)
	for _, at := range [][]string{
		{"GET", "http://" + status + "/connections"},
		{"GET", "http://" + status + "/connections", "Host", "localhost:" + statusPort},
		{"GET", "http://" + status + "/connections", "Host", "[::1]:15020"},
		{"GET", "http://" + admin + "/stats", "Origin", "http://" + admin, "Sec-Fetch-Site", "same-origin"},
		{"POST", "http://" + admin + "/healthcheck/ok"},
		{"POST", "http://" + status + "/quitquitquit"},
	} {
		if code := ask(at[0], at[1], at[2:]...); code != http.StatusOK {
			t.Errorf("%q: %d", at, code)
		}
	}
}

// A peer that tries tokens does not fill the log.
func TestWrongTokensDoNotFillTheLog(t *testing.T) {
	status := freeLoopback(t)
	cmd := exec.Command("lastcall", "agent", "--status-port", portOf(status), "--admin-address", "off", "--termination-log", "", "--inbound", freeLoopback(t)+"=127.0.0.1:1")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "LASTCALL_HOOK_TOKEN=secret")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, status)
	began := time.Now()
	const tries = 2000
	for range tries {
		textOf("http://" + status + "/wait/wrong")
	}
	took := time.Since(began)
	counted := strings.Contains(textOf("http://"+status+"/metrics"), fmt.Sprintf("lastcall_hook_refused_total %d", tries))
	resp, err := http.Post("http://"+status+"/quitquitquit", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	_ = cmd.Wait()
	if lines := strings.Count(log.String(), "without the pod's token"); lines < 1 || lines > 1+int(took/time.Second) || !counted {
		t.Errorf("%d tries in %v: %d lines, counted %v", tries, took, lines, counted)
	}
}
