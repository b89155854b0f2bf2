package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// slowApp answers each request when more is closed, in two halves.
func slowApp(t *testing.T) (addr string, arrived chan struct{}, more chan struct{}) {
	arrived, more = make(chan struct{}, 8), make(chan struct{})
	return raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := readRequest(r); err != nil {
			return
		}
		arrived <- struct{}{}
		<-more
		_, _ = io.WriteString(c, ok)
	}), arrived, more
}

// Told to stop, it takes no new connection, finishes what is in flight and says
// goodbye with it, and leaves.
func TestStopFinishesWhatIsInFlight(t *testing.T) {
	addr, arrived, more := slowApp(t)
	g := start(t, Options{Endpoints: []string{addr}})
	idle, busy := dial(t, g.addr), dial(t, g.addr)
	say(t, busy, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	within(t, "request", arrived)
	say(t, idle, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n") // answered by the gateway itself
	r := bufio.NewReader(idle)
	if resp, _ := readResponse(t, r); resp.Close {
		t.Error("goodbye before it was told to stop")
	}
	g.stop()
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: %v, want EOF", err)
	}
	if c, err := net.Dial("tcp", g.addr); err == nil {
		_ = c.Close()
		t.Error("it still accepts")
	}
	close(more)
	if resp, body := readResponse(t, bufio.NewReader(busy)); resp.StatusCode != 200 || body != "ok" || !resp.Close {
		t.Errorf("in flight: %s %q, closing %v", resp.Status, body, resp.Close)
	}
	g.access.until(t, " 200 - via_upstream ")
	g.log.until(t, "gateway has stopped")
}

func TestStopFinishesWhatIsInFlightHTTP2(t *testing.T) {
	addr, arrived, more := slowApp(t)
	g := start(t, Options{Endpoints: []string{addr}, Certificates: selfSigned(t)})
	c, url := g.client(t, true)
	got := make(chan string, 1)
	go func() {
		resp, err := c.Get(url)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		got <- fmt.Sprint(resp.Status, " ", string(body), err)
	}()
	within(t, "request", arrived)
	g.stop()
	g.log.until(t, "gateway is stopping")
	close(more)
	if got := within(t, "response", got); got != "200 OK ok<nil>" {
		t.Error(got)
	}
	g.log.until(t, "gateway has stopped")
}

// What takes too long is broken off, upgraded connections too, and logged.
func TestStopHasALimit(t *testing.T) {
	for _, upgrade := range []bool{false, true} {
		t.Run(fmt.Sprintf("upgrade=%v", upgrade), func(t *testing.T) {
			arrived := make(chan struct{}, 1)
			addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if _, err := readRequest(r); err != nil {
					return
				}
				if upgrade {
					_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				}
				arrived <- struct{}{}
				_, _ = r.ReadByte()
			})
			g := start(t, Options{Endpoints: []string{addr}, ShutdownTimeout: 50 * time.Millisecond})
			c := dial(t, g.addr)
			request, status := "GET / HTTP/1.1\r\nHost: a\r\n\r\n", " 0 "
			if upgrade {
				request, status = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", " 101 "
			}
			say(t, c, request)
			within(t, "request", arrived)
			g.stop()
			g.log.until(t, "gateway breaks off what is in flight", "requests=1")
			g.access.until(t, status+"LR gateway_shutdown ")
			if _, err := io.ReadAll(c); err != nil {
				t.Logf("the client saw %v", err)
			}
			g.log.until(t, "gateway has stopped")
		})
	}
}

func TestReadiness(t *testing.T) {
	addr, arrived, more := slowApp(t)
	g := start(t, Options{Endpoints: []string{addr}})
	ready := func() string {
		w := httptest.NewRecorder()
		g.AdminHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	g.log.until(t, "gateway is serving")
	if got := ready(); got != "200 LIVE\n" {
		t.Error(got)
	}
	c := dial(t, g.addr)
	say(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	within(t, "request", arrived)
	g.stop()
	g.log.until(t, "gateway is stopping")
	if got := ready(); got != "503 DRAINING\n" {
		t.Error(got)
	}
	close(more)
}

func TestServeFails(t *testing.T) {
	listen := func(t *testing.T) net.Listener {
		t.Helper()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	t.Run("the listener breaks", func(t *testing.T) {
		g, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		ln := listen(t)
		_ = ln.Close()
		if err := g.Serve(t.Context(), ln); err == nil || !strings.Contains(err.Error(), "gateway: serve on "+ln.Addr().String()) {
			t.Error(err)
		}
	})
	t.Run("the folder of the endpoints file is gone", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "etc")
		file := filepath.Join(dir, "pods")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		g, err := New(Options{EndpointsFile: file})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		ln := listen(t)
		if err := g.Serve(t.Context(), ln); err == nil || !strings.Contains(err.Error(), "watch the folder of the endpoints file "+file) {
			t.Error(err)
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is open: %v", err)
		}
	})
	t.Run("told to stop before it begins", func(t *testing.T) {
		g, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Serve(ctx, listen(t)); err != nil {
			t.Error(err)
		}
	})
}

func TestBadOptions(t *testing.T) {
	dir := t.TempDir()
	wrong := filepath.Join(dir, "pods")
	if err := os.WriteFile(wrong, []byte("nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    Options
		want []string
	}{
		{"no such file", Options{EndpointsFile: filepath.Join(dir, "none")}, []string{"read the endpoints file (an empty file is accepted): open " + filepath.Join(dir, "none")}},
		{"a folder", Options{EndpointsFile: dir}, []string{"read the endpoints file", dir}},
		{"a wrong file", Options{EndpointsFile: wrong}, []string{wrong + `:1: endpoint "nowhere"`}},
		{"a wrong list", Options{Endpoints: []string{"a:80", "b"}}, []string{`endpoint "b": accepted is host:port`}},
		{"all of them at once", Options{EndpointsFile: wrong, Endpoints: []string{"a:80"}, ConnectTimeout: -1, RequestTimeout: -1, ShutdownTimeout: -1, MaxIdlePerEndpoint: -1, MaxAttempts: -1},
			[]string{"connect timeout is -1ns", "request timeout is", "shutdown timeout is", "idle connections per endpoint is -1", "attempts to connect is -1", "as a file and as a list"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.o)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
		})
	}
	if _, err := LoadCertificate(wrong, filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "accepted are PEM files that belong together") {
		t.Error(err)
	}
	if _, err := SelfSigned(nil); err == nil || !strings.Contains(err.Error(), "at least one is needed") {
		t.Error(err)
	}
}
