package gateway

import (
	"bufio"
	"context"
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

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
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
	addr string
	log  lines
}

// start serves a gateway on loopback to the end of the test.
func start(t *testing.T, endpoints ...string) *running {
	t.Helper()
	r := &running{log: make(lines, 4096)}
	r.Gateway = New(slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	r.SetEndpoints(endpoints)
	server := httptest.NewServer(r.Gateway)
	r.addr = server.Listener.Addr().String()
	t.Cleanup(func() {
		server.Close()
		r.SetEndpoints(nil)
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
	must.Do(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	return resp, string(body)
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

// The endpoint gets the request as the client sent it.
func TestRequestAsTheEndpointSeesIt(t *testing.T) {
	g := start(t, app(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s %q", r.Method, r.Host, r.RequestURI, r.Header.Values("Accept-Encoding"))
	}))
	c, url := g.client(t)
	if _, got := get(t, c, url+"/a%2Fb/c?x=1&y=2"); got != "GET "+g.addr+" /a%2Fb/c?x=1&y=2 []" {
		t.Errorf("got %s", got)
	}
}

// A response does not wait in the gateway for its end.
func TestResponsesAreStreamed(t *testing.T) {
	more := make(chan struct{})
	g := start(t, app(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "second")
	}))
	c, url := g.client(t)
	resp, err := c.Get(url)
	if err != nil {
		close(more)
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

// A removed endpoint completes its requests in flight, its idle connections are closed, and it gets no new requests.
func TestRemovedEndpoint(t *testing.T) {
	arrived, more := make(chan struct{}, 1), make(chan struct{})
	ended := make(chan string, 8)
	old := raw(t, func(c net.Conn, r *bufio.Reader) {
		for {
			req, err := readRequest(r)
			if err != nil {
				ended <- fmt.Sprint("old: ", err)
				return
			}
			if req.URL.Path == "/slow" {
				arrived <- struct{}{}
				<-more
			}
			_, _ = io.WriteString(c, ok)
		}
	})
	next := raw(t, answers)
	g := start(t, old)
	c, url := g.client(t)
	slow := make(chan string, 1)
	go func() {
		resp, err := c.Get(url + "/slow")
		if err != nil {
			slow <- err.Error()
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		slow <- fmt.Sprint(resp.Status, string(body), err)
	}()
	within(t, "slow request", arrived)
	if resp, _ := get(t, c, url+"/fast"); resp.StatusCode != 200 { // leaves an idle connection
		t.Fatal(resp.Status)
	}
	g.SetEndpoints([]string{next})
	if got := within(t, "end of the idle connection", ended); got != "old: EOF" {
		t.Error(got)
	}
	for range 4 {
		if resp, _ := get(t, c, url+"/fast"); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
	close(more)
	if got := within(t, "slow response", slow); got != "200 OKok<nil>" {
		t.Error(got)
	}
	if got := within(t, "end of the connection that was in flight", ended); got != "old: EOF" {
		t.Error(got)
	}
	if len(ended) > 0 {
		t.Error("more connections went to the removed endpoint")
	}
}

// While the list changes all the time, every request gets its response, with a body or without. One that a connection is
// refused for goes to the next endpoint.
func TestNoRequestIsLostToAChange(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	a, b, none := app(t, echo), app(t, echo), nettest.FreeAddress(t, "127.0.0.1")
	g := start(t, a, b)
	const clients, each = 4, 100
	failed := make(chan string, clients*each)
	ended := make(chan struct{}, clients)
	for range clients {
		c, url := g.client(t)
		go func() {
			defer func() { ended <- struct{}{} }()
			for i := range each {
				body := strings.Repeat("b", i%2*i)
				resp, err := c.Post(url, "text/plain", strings.NewReader(body))
				if err != nil {
					failed <- err.Error()
					continue
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || string(got) != body || err != nil {
					failed <- fmt.Sprint(resp.Status, string(got), err)
				}
			}
		}()
	}
	for i, left := 0, clients; left > 0; i++ {
		select {
		case <-ended:
			left--
		case line := <-g.log:
			if strings.Contains(line, "via_upstream") { // with each request
				g.SetEndpoints([][]string{{a}, {none, a, b}, {b, none}}[i%3])
			}
		}
	}
	close(failed)
	for f := range failed {
		t.Error(f)
	}
}

// Each local reply, byte for byte, with its line in the log. All was recorded from
// Envoy 1.40 with Istio's default retries.
func TestLocalReplies(t *testing.T) {
	writes := func(text string) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, r *bufio.Reader) {
			if _, err := readRequest(r); err == nil {
				_, _ = io.WriteString(c, text)
			}
		}
	}
	const reset = "upstream connect error or disconnect/reset before headers. "
	for _, tt := range []struct {
		name      string
		endpoints func(*testing.T) []string
		status    int
		body      string
		logged    string // status, flag and details
	}{
		{
			name: "no endpoints", endpoints: func(*testing.T) []string { return nil },
			status: 503, body: "no healthy upstream", logged: " 503 UH no_healthy_upstream\"",
		},
		{
			name: "none accepts the connection",
			endpoints: func(t *testing.T) []string {
				return []string{nettest.FreeAddress(t, "127.0.0.1"), nettest.FreeAddress(t, "127.0.0.1")}
			},
			status: 503, body: reset + "retried and the latest reset reason: remote connection failure",
			logged: " 503 URX,UF upstream_reset_before_response_started{remote_connection_failure}\"",
		},
		{
			name:      "closed before the head",
			endpoints: func(t *testing.T) []string { return []string{raw(t, writes(""))} },
			status:    503, body: reset + "reset reason: connection termination",
			logged: " 503 UC upstream_reset_before_response_started{connection_termination}\"",
		},
		{
			name:      "closed in the head",
			endpoints: func(t *testing.T) []string { return []string{raw(t, writes("HTTP/1.1 200 OK\r\nContent-"))} },
			status:    502, body: reset + "reset reason: protocol error",
			logged: " 502 UPE upstream_reset_before_response_started{protocol_error}\"",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := start(t, tt.endpoints(t)...)
			c, url := g.client(t)
			resp, body := get(t, c, url+"/delay/10")
			if resp.StatusCode != tt.status || body != tt.body {
				t.Errorf("got %d %q, want %d %q", resp.StatusCode, body, tt.status, tt.body)
			}
			h := resp.Header
			if h.Get("Date") == "" {
				t.Error("no date")
			}
			h.Del("Date")
			want := fmt.Sprintf("map[Content-Length:[%d] Content-Type:[text/plain] Server:[lastcall]]", len(tt.body))
			if got := fmt.Sprint(h); got != want {
				t.Errorf("headers %s, want %s", got, want)
			}
			g.log.until(t, tt.logged)
		})
	}
}

// The client detects an end in the middle of a body.
func TestBreakInTheBody(t *testing.T) {
	for _, head := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
		t.Run(head[:7], func(t *testing.T) {
			addr := raw(t, func(c net.Conn, r *bufio.Reader) {
				if _, err := readRequest(r); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
				}
			})
			g := start(t, addr)
			c, url := g.client(t)
			resp, err := c.Get(url)
			must.Do(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil || string(body) != "half" {
				t.Errorf("got %q, %v: want half and an error", body, err)
			}
			g.log.until(t, " 200 UPE upstream_reset_after_response_started{protocol_error}\"")
		})
	}
}

// When a client closes its connection, its request ends at the endpoint too.
func TestClientGone(t *testing.T) {
	for _, tt := range []struct {
		name, answer, logged string
	}{
		{"before the response", "", " 0 DC downstream_remote_disconnect\""},
		{"in the response", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", " 200 DC downstream_remote_disconnect\""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arrived, gone := make(chan struct{}, 1), make(chan struct{}, 1)
			addr := raw(t, func(c net.Conn, r *bufio.Reader) {
				if _, err := readRequest(r); err != nil {
					return
				}
				_, _ = io.WriteString(c, tt.answer)
				arrived <- struct{}{}
				_, _ = r.ReadByte()
				gone <- struct{}{}
			})
			g := start(t, addr)
			c, url := g.client(t)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			must.Do(t, err)
			ended := make(chan error, 1)
			go func() {
				resp, err := c.Do(req)
				if err == nil {
					_, err = io.ReadAll(io.LimitReader(resp.Body, 4))
					leave()
					_ = resp.Body.Close()
				}
				ended <- err
			}()
			within(t, "request", arrived)
			if tt.answer == "" {
				leave()
			}
			within(t, "end of the client", ended)
			within(t, "end of the endpoint's connection", gone)
			g.log.until(t, tt.logged)
		})
	}
}

// raw is an upstream that calls serve with each connection.
func raw(t *testing.T, serve func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Each(t, ln, func(c net.Conn) { serve(c, bufio.NewReader(c)) })
	return ln.Addr().String()
}

// readRequest takes one request, with its body, off r.
func readRequest(r *bufio.Reader) (*http.Request, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return req, err
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// answers serves every request with ok.
func answers(c net.Conn, r *bufio.Reader) {
	for {
		if _, err := readRequest(r); err != nil {
			return
		}
		if _, err := io.WriteString(c, ok); err != nil {
			return
		}
	}
}
