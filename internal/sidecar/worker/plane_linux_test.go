package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/leak"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

func TestMain(m *testing.M) { leak.Main(m) }

func begin(t *testing.T, o Options, signals ...string) *Plane {
	t.Helper()
	for _, text := range signals {
		s, err := Parse(text)
		must.Do(t, err)
		o.Signals = append(o.Signals, s)
	}
	o.Log = slog.New(slog.DiscardHandler)
	p := New(o)
	must.Do(t, p.Drain(t.Context()))
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		<-p.Exited()
	})
	return p
}

// await waits until the plane has a number of busy signals, and one of them contains a text.
func await(t *testing.T, p *Plane, busy int, text string) {
	t.Helper()
	polltest.Eventually(t, "the signals report it", func() bool {
		a, err := p.Activity(t.Context())
		open, openErr := p.Open(t.Context(), 10)
		return err == nil && openErr == nil && a.Busy == busy && len(open) == busy && (text == "" || strings.Contains(open[0].Request, text))
	})
}

// worker is busy until the test sets it idle.
type worker struct{ idle, failing atomic.Bool }

func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch {
	case w.failing.Load():
		rw.WriteHeader(http.StatusNotFound)
	case r.URL.Path == "/metrics" && w.idle.Load():
		_, _ = io.WriteString(rw, "active 0\n")
	case r.URL.Path == "/metrics":
		_, _ = io.WriteString(rw, "active 3\n")
	case !w.idle.Load():
		rw.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(rw, "order 17\nmore")
	}
}

func TestSignals(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	w := &worker{}
	server := httptest.NewServer(w)
	defer server.Close()
	for name, tt := range map[string]struct {
		signal, busy  string
		idle, restart func()
	}{
		"http":    {server.URL + "/idle", "(order 17)", func() { w.idle.Store(true) }, func() { w.idle.Store(false) }},
		"metric":  {"metric:" + server.URL + "/metrics active <= 0", "(3)", func() { w.idle.Store(true) }, func() { w.idle.Store(false) }},
		"file":    {"file:" + file, "", func() { touch(t, file) }, func() { _ = os.Remove(file) }},
		"no file": {"!file:" + file, "(modified 20", func() { _ = os.Remove(file) }, func() { touch(t, file) }},
		"exec":    {"exec:[\"sh\", \"-c\", \"test -e " + file + " || { echo busy; exit 1; }\"]", "(busy)", func() { touch(t, file) }, func() { _ = os.Remove(file) }},
	} {
		t.Run(name, func(t *testing.T) {
			tt.restart()
			p := begin(t, Options{Stale: time.Hour}, tt.signal)
			await(t, p, 1, tt.busy)
			tt.idle()
			await(t, p, 0, "")
			tt.restart()
			await(t, p, 1, tt.busy)
			if open, err := p.LastCall(t.Context(), 0); err != nil || len(open) != 1 || open[0].Ending != drain.LeftToApp {
				t.Errorf("%+v, %v", open, err)
			}
		})
	}
}

func touch(t *testing.T, file string) {
	t.Helper()
	must.Do(t, os.WriteFile(file, nil, 0o600))
}

// A long poll delays its answer until the worker is idle.
func TestLongPoll(t *testing.T) {
	idle := make(chan struct{})
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Prefer") != "wait=10" {
			t.Errorf("Prefer: %q", r.Header.Get("Prefer"))
		}
		select {
		case <-idle:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	p := begin(t, Options{Stale: time.Hour}, server.URL)
	polltest.Eventually(t, "the signals report it", func() bool { return requests.Load() == 1 })
	await(t, p, 1, "")
	close(idle)
	await(t, p, 0, "")
}

// A worker keeps the connection to its socket open while it is busy. The kernel closes it at the end of the worker.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "work.sock")
	p := begin(t, Options{Stale: time.Hour}, "unix:"+path)
	await(t, p, 1, "no such file or directory")
	ln, err := net.Listen("unix", path)
	must.Do(t, err)
	accept := func() net.Conn {
		conn, err := ln.Accept()
		must.Do(t, err)
		return conn
	}
	conn := accept()
	_, _ = io.WriteString(conn, "order 17\n")
	await(t, p, 1, "(order 17)")
	_ = conn.Close()
	await(t, p, 0, "")
	conn = accept() // idle: closed at once
	_ = conn.Close()
	conn = accept()
	await(t, p, 1, "")
	_ = conn.Close()
	_ = ln.Close()
	await(t, p, 0, "")
}

// A signal that fails counts as busy, for a limited time.
func TestFailingSignals(t *testing.T) {
	w := &worker{}
	w.failing.Store(true)
	server := httptest.NewServer(w)
	defer server.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	touch(t, file)
	for signal, why := range map[string]string{
		server.URL + "/idle":                              "status 404: must be 2xx for idle or 503 for busy",
		"metric:" + server.URL + "/metrics active <= 0":   "status 404",
		"exec:/nowhere/program":                           "no such file or directory",
		`exec:["sh", "-c", "echo gone; exit 127"]`:        "exit status 127: gone",
		`exec:["sh", "-c", "kill -KILL $$"]`:              "signal: killed",
		"file:" + filepath.Join(file, "below"):            "not a directory",
		"unix:" + filepath.Join(dir, "none"):              "no such file or directory",
		"http://127.0.0.1:1/":                             "connection refused",
		"metric:" + server.URL + "/metrics inactive <= 0": "status 404",
	} {
		t.Run(signal, func(t *testing.T) {
			p := begin(t, Options{}, signal)
			await(t, p, 1, why)
			p = begin(t, Options{Stale: 10 * time.Millisecond}, signal)
			await(t, p, 0, "")
			if got := p.Assumed(); len(got) != 1 || !strings.Contains(got[0], "assumed to be idle: it has not answered for 10ms: ") || !strings.Contains(got[0], why) {
				t.Errorf("assumed: %q", got)
			}
		})
	}
}

// take is called as answers arrive; the limits run in virtual time.
func TestLimits(t *testing.T) {
	busy := func(detail string) answer { return answer{detail: detail} }
	failing, idle := answer{err: errors.New("gone")}, answer{isIdle: true}
	type at struct {
		after time.Duration
		answer
		busy bool
	}
	for name, answers := range map[string][]at{
		"a long job":           {{0, busy("1"), true}, {time.Hour, busy("2"), true}, {time.Hour, idle, false}},
		"failing":              {{0, failing, true}, {29 * time.Second, failing, true}, {2 * time.Second, failing, false}},
		"failing for a moment": {{0, failing, true}, {29 * time.Second, busy("1"), true}, {20 * time.Second, failing, true}, {29 * time.Second, failing, true}},
		"back again":           {{0, failing, true}, {31 * time.Second, busy("1"), true}, {time.Second, idle, false}},
		"the same": {{0, busy("1"), true}, {50 * time.Second, busy("2"), true}, {50 * time.Second, busy("2"), true},
			{20 * time.Second, busy("2"), false}, {time.Second, busy("3"), true}},
		"idle, then failing": {{0, idle, false}, {time.Hour, failing, true}, {31 * time.Second, failing, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := Options{Stale: 30 * time.Second, Log: slog.New(slog.DiscardHandler)}
				if name == "the same" {
					o.Heartbeat = time.Minute
				}
				p := New(o)
				w := &watch{signal: Signal{text: "exec:x"}}
				p.watches = []*watch{w}
				for i, step := range answers {
					time.Sleep(step.after)
					synctest.Wait()
					p.take(w, step.answer)
					if a, _ := p.Activity(t.Context()); (a.Busy == 1) != step.busy {
						t.Errorf("after answer %d: %+v", i, a)
					}
				}
				p.Kill()
			})
		})
	}
}

// A command that does not end is ended with its children, and one that holds its output does not hold the drain.
func TestClosedWhileACommandRuns(t *testing.T) {
	p := begin(t, Options{}, `exec:["sh", "-c", "sleep 60"]`, `exec:["sh", "-c", "sleep 60 & exit 0"]`)
	await(t, p, 1, "sleep 60\"]")
	began := time.Now()
	if err := p.Close(t.Context()); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// What a command has left running ends with it: a command is run again and again.
func TestCommandLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	s, err := Parse(`exec:["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $! >` + file + `; exit 1"]`)
	must.Do(t, err)
	if a := s.ask(t.Context()); a.err != nil || a.isIdle {
		t.Fatalf("%+v, want busy", a)
	}
	b, err := os.ReadFile(file)
	must.Do(t, err)
	polltest.Eventually(t, "the child has ended", func() bool {
		stat, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(b)) + "/stat")
		return len(stat) == 0 || strings.Contains(string(stat), ") Z ")
	})
}
