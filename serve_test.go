package lastcall

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/leak"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// TestMain is also the program that the tests start and terminate.
func TestMain(m *testing.M) {
	if os.Getenv("LASTCALL_TEST_PROGRAM") == "" {
		leak.Main(m)
	}
	program()
}

// program is a user's program.
func program() {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.FormValue("takes"))
		slog.Info("in the handler")
		select {
		case <-time.After(d):
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	opts := []Option{}
	if address := os.Getenv("LASTCALL_TEST_STATUS"); address != "" {
		opts = append(opts, WithStatusAddress(address))
	}
	report, err := Serve(context.Background(), &http.Server{Addr: "127.0.0.1:0", Handler: mux}, opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if report.Verdict == drain.Cut {
		os.Exit(3)
	}
	os.Exit(0)
}

// running is such a program.
type running struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	status  string

	mu   sync.Mutex // guards log
	log  bytes.Buffer
	done chan struct{} // closed when the log has ended
}

// patience bounds every wait of these tests. It is shorter than the default grace period.
const patience = 20 * time.Second

func start(t *testing.T, env ...string) *running {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("SIGTERM cannot be sent on Windows")
	}
	r := &running{t: t, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), "LASTCALL_TEST_PROGRAM=1", "GORACE=atexit_sleep_ms=0")
	r.cmd.Env = append(r.cmd.Env, env...)
	stderr, err := r.cmd.StderrPipe()
	must.Do(t, err)
	must.Do(t, r.cmd.Start())
	serving := make(chan struct{})
	var once sync.Once
	hasStatus := strings.Contains(strings.Join(env, " "), "LASTCALL_TEST_STATUS")
	go func() {
		defer close(r.done)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			r.mu.Lock()
			fmt.Fprintln(&r.log, lines.Text())
			r.mu.Unlock()
			var record struct{ Msg, Address string }
			_ = json.Unmarshal(lines.Bytes(), &record)
			switch {
			case record.Msg == "serving":
				r.address = record.Address
			case record.Msg == "serving status":
				r.status = record.Address
			}
			if r.address != "" && (r.status != "" || !hasStatus) {
				once.Do(func() { close(serving) })
			}
		}
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		_ = r.cmd.Wait()
	})
	select {
	case <-serving:
	case <-r.done:
		t.Fatalf("the program has ended:\n%s", r.text())
	case <-time.After(patience):
		t.Fatalf("the program does not serve:\n%s", r.text())
	}
	return r
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// terminate sends SIGTERM, and returns when responses say Connection: close.
func (r *running) terminate() {
	r.t.Helper()
	must.Do(r.t, r.cmd.Process.Signal(syscall.SIGTERM))
	r.await("draining") // it will, in a moment
	c := r.client()
	polltest.Eventually(r.t, "a response has Connection: close", func() bool {
		resp, err := c.Get("http://" + r.address)
		must.Do(r.t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.Close
	})
}

func (r *running) await(message string) {
	r.t.Helper()
	polltest.Eventually(r.t, "the log has "+message, func() bool { return strings.Contains(r.text(), `"msg":"`+message+`"`) })
}

// end waits for the program, and returns its exit code and its report.
func (r *running) end() (int, drain.Report) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatalf("the program does not end:\n%s", r.text())
	}
	_ = r.cmd.Wait()
	var report drain.Report
	for line := range strings.Lines(r.text()) {
		if strings.Contains(line, `"msg":"drained in `) {
			if err := json.Unmarshal([]byte(line), &report); err != nil {
				r.t.Errorf("%v: %s", err, line)
			}
		}
	}
	return r.cmd.ProcessState.ExitCode(), report
}

// client is a client with a connection of its own.
func (r *running) client() *http.Client {
	tr := &http.Transport{}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// get expects a status, and whether the response closes the connection.
func (r *running) get(c *http.Client, path string, status int, closes bool) {
	r.t.Helper()
	resp, err := c.Get("http://" + r.address + path)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || resp.Close != closes {
		r.t.Errorf("%s: %s, close %v, %q, %v; want %d, close %v", path, resp.Status, resp.Close, body, err, status, closes)
	}
}

// A rollout's termination: the request in flight is answered, clients that connect after SIGTERM are
// served, idle connections are closed, and the program exits when the last response is out.
func TestServe(t *testing.T) {
	t.Parallel()
	r := start(t, "MINIMUM_DRAIN_DURATION=300ms", "LASTCALL_QUIET_TIME=100ms", "LASTCALL_IDLE_GRACE=50ms")
	idle, err := net.Dial("tcp", r.address)
	must.Do(t, err)
	defer idle.Close()
	kept := r.client()
	r.get(kept, "/", 200, false)

	var slow sync.WaitGroup
	slow.Go(func() { r.get(r.client(), "/slow?takes=3s", 200, true) })
	r.await("in the handler")
	r.terminate()
	r.get(kept, "/", 200, true)       // on a connection from before
	r.get(r.client(), "/", 200, true) // on a new one
	_ = idle.SetReadDeadline(time.Now().Add(patience))
	if n, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection: %d, %v, want its end", n, err)
	}
	slow.Wait()
	code, report := r.end()
	if code != 0 || report.Verdict != drain.Clean || report.Trigger != "SIGTERM" || report.Late < 2 || len(report.Open) > 0 {
		t.Errorf("exit %d, %+v\n%s", code, report, r.text())
	}
	if len(report.HeldBy) != 1 || report.HeldBy[0].Request != "GET /slow?takes=3s" {
		t.Errorf("held by %v", report.HeldBy)
	}
	if _, err := net.Dial("tcp", r.address); err == nil {
		t.Error("the port is still open")
	}
}

// A request that does not end gets a 503 before SIGKILL would come, or at a second SIGTERM that is no repeat of the first,
// and the report names it.
func TestServeLastCall(t *testing.T) {
	for name, env := range map[string][]string{
		"before SIGKILL":      {"MINIMUM_DRAIN_DURATION=300ms", "LASTCALL_QUIET_TIME=0s", "TERMINATION_GRACE_PERIOD_SECONDS=2"},
		"at a second SIGTERM": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, env...)
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				r.get(r.client(), "/slow?takes=1h", 503, true)
			}()
			r.await("in the handler")
			must.Do(t, r.cmd.Process.Signal(syscall.SIGTERM))
			if env == nil {
				r.await("draining")
				first := time.Now()
				polltest.Eventually(t, "a second has passed", func() bool { return time.Since(first) > time.Second })
				must.Do(t, r.cmd.Process.Signal(syscall.SIGTERM)) // no repeat
			}
			code, report := r.end()
			<-answered
			if code != 3 || report.Verdict != drain.Cut {
				t.Errorf("exit %d, %+v", code, report)
			}
			if len(report.Open) != 1 || report.Open[0].Ending != "503" || report.Open[0].Request != "GET /slow?takes=1h" {
				t.Errorf("cut: %+v", report.Open)
			}
		})
	}
}

// The preStop hook drains and returns; SIGTERM then ends the program without another drain.
func TestServePreStop(t *testing.T) {
	t.Parallel()
	r := start(t, "MINIMUM_DRAIN_DURATION=300ms", "LASTCALL_QUIET_TIME=100ms", "LASTCALL_TEST_STATUS=127.0.0.1:0", "LASTCALL_HOOK_TOKEN=secret")
	ask := func(path string) int {
		resp, err := r.client().Get("http://" + r.status + path)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if ready, open := ask("/ready"), ask("/prestop"); ready != 200 || open != 404 {
		t.Errorf("ready %d, a hook without its token %d", ready, open)
	}
	began := time.Now()
	if hook := ask("/prestop/secret"); hook != 200 || time.Since(began) < 300*time.Millisecond {
		t.Errorf("the hook: %d after %v", hook, time.Since(began))
	}
	if ready := ask("/ready"); ready != 200 {
		t.Errorf("ready %d after the hook: the listener is open", ready)
	}
	r.get(r.client(), "/", 200, true)
	must.Do(t, r.cmd.Process.Signal(syscall.SIGTERM))
	code, report := r.end()
	if code != 0 || report.Verdict != drain.Clean || report.Trigger != "hook" {
		t.Errorf("exit %d, %+v", code, report)
	}
}

// A server that the program has closed itself cannot be served again. Nor can a worker.
func TestEndedBefore(t *testing.T) {
	log := WithLogger(slog.New(slog.DiscardHandler))
	ln := loopback(t)
	c, err := net.Dial("tcp", ln.Addr().String())
	must.Do(t, err)
	defer c.Close()
	server := &http.Server{Addr: ln.Addr().String()}
	server.ConnState = func(net.Conn, http.ConnState) { go server.Close() } // it serves
	want := "lastcall: serve on " + server.Addr + ": the server was shut down or served before; make a new http.Server"
	if r, err := Serve(t.Context(), server, log, WithListener(ln)); err != nil || r.Trigger != "shutdown" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := Serve(t.Context(), server, log); err == nil || err.Error() != want || r.Trigger != "server ended" {
		t.Errorf("%+v, %v; want %s", r, err, want)
	}
	w := NewWorker("orders")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, w, log); err != nil {
		t.Error(err)
	}
	if _, err := Run(t.Context(), w, log); err == nil || err.Error() != "lastcall: the data plane has already ended; make a new one" {
		t.Errorf("an ended worker: %v", err)
	}
}

// What keeps the server from starting is an error, and nothing is left open.
func TestServeErrors(t *testing.T) {
	taken := loopback(t)
	defer taken.Close()
	address := taken.Addr().String()
	for want, tt := range map[string]struct {
		address string
		opt     Option
	}{
		"address already in use": {address, WithQuietTime(0)},
		"load the certificate":   {"127.0.0.1:0", WithTLSFiles("none.crt", "none.key")},
		"status address":         {"127.0.0.1:0", WithStatusAddress(address)},
		"unexpected EOF":         {"", WithListener(broken{taken})},
	} {
		var log bytes.Buffer
		report, err := Serve(t.Context(), &http.Server{Addr: tt.address}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))), tt.opt)
		if tt.address != "" && strings.Contains(log.String(), "msg=serving") {
			t.Errorf("want %q, but it logs that it serves:\n%s", want, &log)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "lastcall: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got: %v", want, err)
		}
		if tt.address == "" && report.Verdict != drain.Crashed {
			t.Errorf("a broken listener: %+v", report)
		}
	}
}

type broken struct{ net.Listener }

func (broken) Accept() (net.Conn, error) { return nil, io.ErrUnexpectedEOF }
func (broken) Close() error              { return nil }

func loopback(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	return ln
}

// Serve on a listener that has been closed fails before it logs "serving".
func TestServeOnClosedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	_ = ln.Close()
	var log bytes.Buffer
	_, err = Serve(t.Context(), &http.Server{}, WithListener(ln), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if !errors.Is(err, net.ErrClosed) || strings.Contains(log.String(), "serving") {
		t.Errorf("%v\n%s", err, &log)
	}
}
