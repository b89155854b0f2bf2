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
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hotrestart"
)

// hotAppMain is an app that does what a file says: hotapp PORT FILE.
func hotAppMain() {
	b, err := os.ReadFile(os.Args[2])
	if err != nil {
		fmt.Println("hotapp:", err)
		os.Exit(1)
	}
	switch string(b) {
	case "exit":
		os.Exit(7)
	case "silent":
		fmt.Println("hotapp: silent")
		select {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getpid()) })
	mux.HandleFunc("/environ", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Environ()) })
	mux.HandleFunc("/delay/{ms}", func(_ http.ResponseWriter, r *http.Request) {
		ms, _ := strconv.Atoi(r.PathValue("ms"))
		fmt.Println("hotapp: request with a delay")
		time.Sleep(time.Duration(ms) * time.Millisecond)
	})
	fmt.Println("hotapp:", http.ListenAndServe("127.0.0.1:"+os.Args[1], mux))
	os.Exit(1)
}

// hot is a lastcall run through all its processes.
type hot struct {
	t               *testing.T
	address, status string // of the inbound and of the status server
	app, mesh, pid  string // files: what the app does; the mesh's configuration; the serving process
	url             string // of the inbound
	transport       http.RoundTripper
	first           *exec.Cmd
	ended           chan struct{} // every process has

	mu      sync.Mutex      // guards the fields below
	log     strings.Builder // of all processes
	changed chan struct{}   // closed and replaced when the log has grown
}

// startHot runs the app behind lastcall. appPort is a number, or 0.
func startHot(t *testing.T, appPort string, env []string, args ...string) *hot {
	t.Helper()
	return startHotBy(t, http.DefaultTransport, "", appPort, env, args...)
}

// startHotBy is startHot with options of the inbound, and a transport that fits.
func startHotBy(t *testing.T, transport http.RoundTripper, options, appPort string, env []string, args ...string) *hot {
	t.Helper()
	dir := t.TempDir()
	h := &hot{
		t: t, address: freeLoopback(t), status: freeLoopback(t),
		app: filepath.Join(dir, "app"), mesh: filepath.Join(dir, "mesh"), pid: filepath.Join(dir, "pid"),
		changed: make(chan struct{}), ended: make(chan struct{}), transport: transport,
	}
	h.url = "http://" + h.address
	if options != "" {
		h.url = "https://" + h.address
	}
	h.write(h.app, "serve")
	h.write(h.mesh, "{}")
	host, port, _ := net.SplitHostPort(h.status)
	args = append([]string{"run", "--status-address", host, "--status-port", port, "--mesh-config", h.mesh, "--pid-file", h.pid,
		"--inbound", h.address + "=127.0.0.1:" + appPort + ",protocol=http" + options, "--termination-log", ""}, args...)
	h.first = exec.Command("lastcall", append(args, "--", "hotapp", "{port}", h.app)...)
	h.first.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms", "LASTCALL_IDLE_GRACE=1s")
	h.first.Env = append(h.first.Env, env...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	h.first.Stdout, h.first.Stderr = in, in
	if err := h.first.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	go h.read(out)
	t.Cleanup(h.end)
	polltest.Eventually(h.t, "the app serves", func() bool { return h.get("/") != "" })
	return h
}

func freeLoopback(t *testing.T) string {
	t.Helper()
	address, err := freePort("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func (h *hot) write(file, text string) {
	h.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// read follows the log. It ends when every process that could write it has.
func (h *hot) read(out *os.File) {
	defer close(h.ended)
	defer out.Close()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		h.mu.Lock()
		h.log.WriteString(lines.Text() + "\n")
		close(h.changed)
		h.changed = make(chan struct{})
		h.mu.Unlock()
	}
}

// logged waits until the pattern stands in the log n times.
func (h *hot) logged(pattern string, n int) {
	h.t.Helper()
	late := time.After(20 * time.Second)
	for re := regexp.MustCompile(pattern); ; {
		h.mu.Lock()
		found, changed := len(re.FindAllString(h.log.String(), -1)), h.changed
		h.mu.Unlock()
		if found >= n {
			return
		}
		select {
		case <-changed:
		case <-late:
			h.t.Fatalf("%q is not in the log %d times but %d times", pattern, n, found)
		}
	}
}

// get is the app's answer to a request on a connection of its own; empty without one.
func (h *hot) get(path string) string {
	req, err := http.NewRequest(http.MethodGet, h.url+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Close = true
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// restart is lastcall hot-restart, and what it says.
func (h *hot) restart(args ...string) (string, error) {
	h.t.Helper()
	if args == nil {
		_, port, _ := net.SplitHostPort(h.status)
		args = []string{"--status-port", port}
	}
	cmd := exec.CommandContext(h.t.Context(), "lastcall", append([]string{"hot-restart", "--timeout", "20s"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *hot) mustRestart(args ...string) {
	h.t.Helper()
	if out, err := h.restart(args...); err != nil {
		h.t.Fatalf("hot-restart: %v: %s", err, out)
	}
}

// pidServing is the number in the pid file.
func (h *hot) pidServing() int {
	h.t.Helper()
	pid, err := hotrestart.ReadPIDFile(h.pid)
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

// end stops the serving process and waits for all. A process that leaves may end by the signal that its successor was
// to get: then the file names another one.
func (h *hot) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	last := 0
	err := poll.Until(ctx, 20*time.Millisecond, func() bool {
		if pid, err := hotrestart.ReadPIDFile(h.pid); err == nil && pid != last {
			_ = syscall.Kill(pid, syscall.SIGTERM)
			last = pid
		}
		select {
		case <-h.ended:
			return true
		default:
			return false
		}
	})
	if err != nil {
		h.t.Error("something is still running")
		_ = syscall.Kill(last, syscall.SIGABRT) // its goroutines are in the log
		_ = h.first.Process.Kill()
	}
	_ = h.first.Wait()
	if h.t.Failed() {
		h.mu.Lock() // whatever is still running still writes
		defer h.mu.Unlock()
		h.t.Log("\n" + h.log.String())
	}
}

func TestHotRestartLosesNothing(t *testing.T) {
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	h := startHot(t, "0", []string{"NOTIFY_SOCKET=" + manager.LocalAddr().String(), "WATCHDOG_USEC=2000000"})
	heard := func(what string) string {
		t.Helper()
		b := make([]byte, 4096)
		for {
			if err := manager.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := manager.Read(b)
			if err != nil {
				t.Fatalf("the service manager has not heard %s: %v", what, err)
			}
			if received := string(b[:n]); strings.Contains(received, what) {
				return received
			}
		}
	}
	heard("READY=1")

	ctx, cancel := context.WithCancel(t.Context())
	clients := load{address: h.address}
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		clients.run(ctx, 8, 300)
	}()
	app, pid := h.get("/"), h.pidServing()
	h.mustRestart()
	heard("RELOADING=1")
	heard("READY=1\nWATCHDOG=1\nSTATUS=serving (pid ")
	h.logged(`trigger="hot restart"`, 1)
	h.mustRestart()
	h.logged(`trigger="hot restart"`, 2)
	cancel()
	<-loaded

	if len(clients.failures) > 0 || clients.requests == 0 || clients.fresh == 0 || clients.reconnects == 0 {
		t.Errorf("of %d requests, %d on fresh connections, with %d ends announced, failed: %v", clients.requests, clients.fresh,
			clients.reconnects, clients.failures)
	}
	if now := h.get("/"); now == app || h.pidServing() == pid {
		t.Errorf("the app is %s, was %s; lastcall is %d, was %d", now, app, h.pidServing(), pid)
	}
	for _, name := range []string{"TABLEFLIP", "NOTIFY_SOCKET", "WATCHDOG"} {
		if environ := h.get("/environ"); environ == "" || strings.Contains(environ, name) {
			t.Errorf("the app's environment has %s: %s", name, environ)
		}
	}
	heard("WATCHDOG=1")
	if err := syscall.Kill(h.pidServing(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	heard("STOPPING=1")
}

func TestASuccessorThatDoesNotServeChangesNothing(t *testing.T) {
	t.Parallel()
	h := startHot(t, "0", nil, "--hot-restart-timeout", "1s")
	app, pid := h.get("/"), h.pidServing()
	for _, row := range []struct{ name, file, text, want string }{
		{"the app ends", h.app, "exit", `it has exited with code 7`},
		{"the app does not listen", h.app, "silent", `not within 1s`},
		{"the configuration is wrong", h.mesh, "defaultConfig: [", `mesh`},
	} {
		t.Run(row.name, func(t *testing.T) {
			good, err := os.ReadFile(row.file)
			if err != nil {
				t.Fatal(err)
			}
			h.write(row.file, row.text)
			out, err := h.restart()
			h.write(row.file, string(good))
			if err == nil || !strings.Contains(out, row.want) {
				t.Errorf("hot-restart says %q, want %q", out, row.want)
			}
			if now := h.get("/"); now != app || h.pidServing() != pid {
				t.Errorf("the app is %q, was %q; lastcall is %d, was %d", now, app, h.pidServing(), pid)
			}
		})
	}
	h.mustRestart()
	// The old process may take one more connection before it hears that it has a successor.
	polltest.Eventually(h.t, "the new app answers", func() bool { return h.get("/") != app })
}

func TestTheOldProcessDrains(t *testing.T) {
	t.Parallel()
	h := startHot(t, "0", []string{`PROXY_CONFIG={"parentShutdownDuration":"3s"}`})
	ask := func(ms int) *bufio.Reader {
		conn, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprintf(conn, "GET /delay/%d HTTP/1.1\r\nHost: x\r\n\r\n", ms)
		return bufio.NewReader(conn)
	}
	short, long := ask(1000), ask(60_000)
	h.logged("hotapp: request with a delay", 2)
	began := time.Now()
	h.mustRestart()
	for _, row := range []struct {
		name string
		in   *bufio.Reader
		want int
	}{{"in time", short, 200}, {"too long", long, 503}} {
		resp, err := http.ReadResponse(row.in, nil)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if resp.StatusCode != row.want || !resp.Close {
			t.Errorf("%s: %d, closes: %v; want %d and Connection: close", row.name, resp.StatusCode, resp.Close, row.want)
		}
	}
	h.logged(`verdict=cut.*trigger="hot restart"`, 1)
	if err := h.first.Wait(); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("the old process ended after %v with %v, want 0 within 3s and what the start took", time.Since(began), err)
	}
	if h.get("/") == "" || h.pidServing() == h.first.Process.Pid {
		t.Errorf("the successor does not serve, or is not named: %d", h.pidServing())
	}
}

// For systemd the service is the old process until that has drained.
func TestStoppedWhileTheOldProcessDrains(t *testing.T) {
	t.Parallel()
	h := startHot(t, "0", []string{"TERMINATION_GRACE_PERIOD_SECONDS=2"})
	conn := h.hang()
	h.mustRestart()
	if pid := h.pidServing(); pid != h.first.Process.Pid {
		t.Errorf("the pid file names %d, want the old process %d", pid, h.first.Process.Pid)
	}
	if err := h.first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.logged(`verdict=clean.*trigger=SIGTERM`, 1)
	h.logged(`verdict=cut.*trigger="hot restart"`, 1)
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the request that was open: %v, %v; want a 503", resp, err)
	}
	if err := h.first.Wait(); err != nil {
		t.Errorf("the old process ended with %v, want 0", err)
	}
	select {
	case <-h.ended:
	case <-time.After(time.Second):
		t.Error("the old process has left something behind")
	}
}

func TestTheSuccessorDiesEarly(t *testing.T) {
	t.Parallel()
	h := startHot(t, "0", nil)
	h.hang()
	out, err := h.restart()
	var pid int
	if _, scanErr := fmt.Sscanf(out, "pid %d serves now", &pid); err != nil || scanErr != nil {
		t.Fatalf("hot-restart says %q: %v", out, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err = h.first.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the old process ended with %v, want 1: the service has to be restarted", err)
	}
}

func TestStoppedWhileTheSuccessorStarts(t *testing.T) {
	t.Parallel()
	h := startHot(t, "0", nil)
	h.write(h.app, "silent")
	if err := syscall.Kill(h.pidServing(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	h.logged("hotapp: silent", 1)
	if err := syscall.Kill(h.pidServing(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.ended: // the successor and its app, too
	case <-time.After(10 * time.Second):
		t.Fatal("something is still running")
	}
	h.logged(`hot restart failed; this process continues to serve" error=terminating`, 1)
	h.logged(`verdict=clean.*trigger=SIGTERM`, 1)
}

func TestHotRestartRefused(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(freeLoopback(t))
	_, free, _ := net.SplitHostPort(freeLoopback(t))
	h := startHot(t, port, nil)
	app := h.get("/")
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"an app's port that is fixed", nil, `they cannot both listen on 127.0.0.1:` + port + `: use port 0`},
		{"no lastcall", []string{"--status-port", free}, "connection refused"},
	} {
		if out, err := h.restart(row.args...); err == nil || !strings.Contains(out, row.want) {
			t.Errorf("%s: hot-restart says %q, want %q", row.name, out, row.want)
		}
	}
	if err := syscall.Kill(h.pidServing(), syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	h.logged("hot restart refused.*use port 0", 1)
	if now := h.get("/"); now != app {
		t.Errorf("the app is %q, was %q", now, app)
	}
	for _, row := range []struct {
		flags agentFlags
		want  string
	}{
		{agentFlags{inbound: []string{":1=127.0.0.1:0"}, envoy: envoyFlags{proxy: "envoy"}}, "--proxy envoy is not supported"},
		{agentFlags{envoy: envoyFlags{proxy: "pipe"}}, "needs --inbound"},
		{agentFlags{inbound: []string{":1=127.0.0.1:0"}, envoy: envoyFlags{proxy: "pipe"}}, "<nil>"},
	} {
		if got := fmt.Sprint(row.flags.refusesSuccessor()); !strings.Contains(got, row.want) {
			t.Errorf("refused with %q, want %q", got, row.want)
		}
	}
}

func TestFreePortIsNoOutgoingConnections(t *testing.T) {
	low, high := ephemeralPorts()
	for range 50 {
		address, err := freePort("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(address)
		if n, _ := strconv.Atoi(port); n < lowestFree || n >= low && n <= high {
			t.Errorf("port %s lies within %d to %d, or below %d", port, low, high, lowestFree)
		}
	}
	if got, _ := freePort("127.0.0.1:8080"); got != "127.0.0.1:8080" {
		t.Errorf("a given port became %s", got)
	}
}
