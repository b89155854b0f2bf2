package gateway

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an event; only a failure takes it.
const patience = 10 * time.Second

// lines is a writer whose writes a test receives.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l <- line
	}
	return len(p), nil
}

// until returns the first line with all of parts.
func (l lines) until(t *testing.T, parts ...string) string {
	t.Helper()
	for {
		s := within(t, fmt.Sprintf("line with %q", parts), l)
		all := true
		for _, p := range parts {
			all = all && strings.Contains(s, p)
		}
		if all {
			return s
		}
	}
}

type running struct {
	*Gateway
	addr        string
	access, log lines
}

// start serves a gateway on loopback to the end of the test.
func start(t *testing.T, endpoints ...string) *running {
	t.Helper()
	r := &running{access: make(lines, 4096), log: make(lines, 4096)}
	access := accesslog.New(r.access, accesslog.Text)
	r.Gateway = New(slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), access)
	r.SetEndpoints(endpoints)
	server := httptest.NewServer(r.Gateway)
	r.addr = server.Listener.Addr().String()
	t.Cleanup(func() {
		server.Close()
		r.SetEndpoints(nil)
		access.Close()
	})
	return r
}

// client returns a client with its own connections, and the gateway's URL.
func (r *running) client(t *testing.T) (*http.Client, string) {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}, "http://" + r.addr
}

func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// app is an endpoint with a handler, for tests that need no odd bytes.
func app(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// within waits for an event of an endpoint or a client.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// The endpoint gets the request as the client sent it, and the client's address.
func TestRequestAsTheEndpointSeesIt(t *testing.T) {
	addr := app(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "Accept-Encoding", "Connection", "X-Hop"} {
			_, _ = fmt.Fprintf(w, "%s=%s\n", name, strings.Join(r.Header.Values(name), "|"))
		}
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.RequestURI)
	})
	g := start(t, addr)
	c, url := g.client(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/a%2Fb/c?x=1;y=%zz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.example"
	req.Header.Set("X-Forwarded-For", "203.0.113.9")
	req.Header.Set("Connection", "X-Hop")
	req.Header.Set("X-Hop", "1")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := "X-Forwarded-For=203.0.113.9, 127.0.0.1\nX-Forwarded-Proto=http\nAccept-Encoding=\nConnection=\nX-Hop=\n" +
		"GET shop.example /a%2Fb/c?x=1;y=%zz"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Neither a request nor a response waits in the gateway for its end.
func TestBodiesAreStreamed(t *testing.T) {
	parts := make(chan string, 1)
	more := make(chan struct{})
	addr := app(t, func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 5)
		_, _ = io.ReadFull(r.Body, buf)
		parts <- string(buf)
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "second")
	})
	g := start(t, addr)
	c := dial(t, g.addr)
	send(t, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nbegin")
	if got := within(t, "part of the request", parts); got != "begin" {
		t.Errorf("the endpoint got %q before the request's end", got)
	}
	send(t, c, "end")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
		t.Errorf("the client got %q before the response's end, %v", first, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "second" {
		t.Errorf("then it got %q, %v", rest, err)
	}
}

// After a 101 all bytes pass in both directions, with the end of each.
func TestUpgrade(t *testing.T) {
	addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		req, err := readRequest(r)
		if err != nil || req.Header.Get("Upgrade") != "websocket" {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello ")
		_, _ = io.Copy(c, r) // until the client's end; then ours
	})
	g := start(t, addr)
	c := dial(t, g.addr)
	send(t, c, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	send(t, c, "late")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "hello late" {
		t.Errorf("got %q, %v", got, err)
	}
	g.access.until(t, `"GET /chat HTTP/1.1" 101 - via_upstream - "-" `)
}

// All fields of an access log line.
func TestAccessLogLine(t *testing.T) {
	addr := raw(t, answers)
	g := start(t, addr)
	c, url := g.client(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/delay/10?x=1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.example"
	req.Header.Set("User-Agent", "curl/8")
	req.Header.Set("X-Request-Id", "id-1")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	line := within(t, "line", g.access)
	f := strings.Fields(line)
	if len(f) != 24 || !strings.HasSuffix(line, "\n") {
		t.Fatalf("%d fields in %q", len(f), line)
	}
	if _, err := time.Parse("[2006-01-02T15:04:05.000Z]", f[0]); err != nil {
		t.Error(err)
	}
	// Times and the ports of the gateway's and the client's ends differ each time.
	for _, i := range []int{0, 11, 12, 19, 21} {
		f[i] = "*"
	}
	want := `* "POST /delay/10?x=1 HTTP/1.1" 200 - via_upstream - "-" 4 2 * * "-" "curl/8" "id-1" "shop.example" "` +
		addr + `" - * ` + g.addr + ` * - -`
	if got := strings.Join(f, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
