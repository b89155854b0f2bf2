package gateway

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// fieldsApp responds with the fields and trailers that it has received.
func fieldsApp(t *testing.T) string {
	return app(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		names := slices.Collect(maps.Keys(r.Header))
		for name := range r.Trailer {
			names = append(names, "trailer "+name)
		}
		slices.Sort(names)
		for _, name := range names {
			_, _ = fmt.Fprintf(w, "%s=%s\n", name, r.Header.Get(name))
		}
	})
}

// A client cannot impersonate a proxy that describes another client.
func TestClaimsOfClients(t *testing.T) {
	const claims = "X-Envoy-External-Address: 10.0.0.1\r\nX-Envoy-Upstream-Rq-Timeout-Ms: 1\r\nX-Real-IP: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\n" +
		"X-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\nX_Real_IP: 10.0.0.1\r\nx_forwarded-for: 10.0.0.1\r\nTrue-Client-IP: 10.0.0.1\r\n" +
		"Proxy: http://evil\r\nX-Forwarded-Proto: gopher\r\n"
	const head = "GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\nX-Forwarded-For: 203.0.113.9\r\n" + claims + "\r\n"
	t.Run("of a client", func(t *testing.T) {
		g := start(t, setup{Endpoints: []string{fieldsApp(t)}})
		c := dial(t, g.addr)
		say(t, c, head)
		const want = "User-Agent=x\nX-Forwarded-For=203.0.113.9,127.0.0.1\nX-Forwarded-Proto=http\n"
		if _, got := readResponse(t, bufio.NewReader(c)); got != want {
			t.Errorf("the endpoint got\n%swant\n%s", got, want)
		}
	})
	t.Run("of a trusted proxy", func(t *testing.T) {
		g := start(t, setup{Endpoints: []string{fieldsApp(t)}, TrustedHops: 1})
		c := dial(t, g.addr)
		say(t, c, head)
		_, got := readResponse(t, bufio.NewReader(c))
		for _, part := range []string{"Forwarded=for=", "X-Real-Ip=10.0.0.1\n", "X-Forwarded-Host=evil\n", "X-Forwarded-Proto=gopher\n", "X-Forwarded-For=203.0.113.9,127.0.0.1\n"} {
			if !strings.Contains(got, part) {
				t.Errorf("the endpoint got\n%swithout %s", got, part)
			}
		}
		if strings.Contains(got, "\nProxy=") {
			t.Errorf("the endpoint got\n%s", got)
		}
	})
}

// Trailers for framing, routing and authentication are dropped in both directions.
func TestForbiddenTrailers(t *testing.T) {
	const trailers = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\nHost: evil\r\nAuthorization: x\r\nSet-Cookie: a=b\r\nIf-Match: x\r\nX-Sum: 42\r\n" +
		"X-Real-IP: 10.0.0.1\r\nContent-Type: x/y\r\nLocation: /\r\nTE: x\r\nProxy: x\r\n"
	for _, announced := range []string{"", "Trailer: X-Sum, Content-Type\r\n"} {
		t.Run("to the endpoint "+announced, func(t *testing.T) {
			seen := make(chan http.Header, 1)
			addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if req, err := readRequest(r); err == nil {
					seen <- req.Trailer
					_, _ = io.WriteString(c, ok)
				}
			})
			g := start(t, setup{Endpoints: []string{addr}})
			c := dial(t, g.addr)
			say(t, c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n4\r\nbody\r\n0\r\n"+trailers+"\r\n")
			if resp, _ := readResponse(t, bufio.NewReader(c)); resp.StatusCode != 200 {
				t.Errorf("got %s", resp.Status)
			}
			if got := fmt.Sprint(within(t, "request", seen)); got != "map[X-Sum:[42]]" {
				t.Errorf("the endpoint got %s", got)
			}
		})
		t.Run("to the client "+announced, func(t *testing.T) {
			addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if _, err := readRequest(r); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n4\r\nbody\r\n0\r\n"+trailers+"\r\n")
				}
			})
			g := start(t, setup{Endpoints: []string{addr}})
			c := dial(t, g.addr)
			say(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			resp, body := readResponse(t, bufio.NewReader(c))
			if got := fmt.Sprint(resp.Trailer); body != "body" || got != "map[X-Sum:[42]]" {
				t.Errorf("the client got %q with %s", body, got)
			}
		})
	}
}

// Heads have a size and a number of fields, as with Envoy.
func TestHeadLimits(t *testing.T) {
	manyFields := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "X-%d: y\r\n", i)
		}
		return b.String()
	}
	large := func(n int) string { return "X-Large: " + strings.Repeat("x", n) + "\r\n" }
	for _, tt := range []struct {
		name, fields string
		request      int // status
		response     int
	}{
		{"few fields", manyFields(90), 200, 200},
		{"20,000 fields", manyFields(20_000), 431, 502},
		{"101 fields", manyFields(101), 431, 502},
		{"50 KiB", large(50 << 10), 200, 200},
		{"1 MiB", large(1 << 20), 431, 502},
		{"70 KiB", large(70 << 10), 431, 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Run("request", func(t *testing.T) {
				g := start(t, setup{Endpoints: []string{raw(t, answers)}})
				c := dial(t, g.addr)
				go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n"+tt.fields+"\r\n") }()
				if resp, _ := readResponse(t, bufio.NewReader(c)); resp.StatusCode != tt.request {
					t.Errorf("got %s, want %d", resp.Status, tt.request)
				}
			})
			t.Run("request over HTTP/2", func(t *testing.T) {
				g := start(t, setup{Endpoints: []string{raw(t, answers)}})
				c, url := g.h2cClient(t)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(tt.fields) {
					name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
					req.Header.Set(name, value)
				}
				resp, err := c.Do(req)
				if tt.request == 431 && err != nil && (strings.Contains(err.Error(), "GOAWAY") || strings.Contains(err.Error(), "advertised limit")) {
					return // the client knows the limit from SETTINGS, or exceeds it so far that net/http ends the connection
				}
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != tt.request {
					t.Errorf("got %s, want %d", resp.Status, tt.request)
				}
			})
			t.Run("response", func(t *testing.T) {
				addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
					if _, err := readRequest(r); err == nil {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+tt.fields+"\r\n")
					}
				})
				g := start(t, setup{Endpoints: []string{addr}})
				c, url := g.client(t, false)
				if resp, _ := get(t, c, url); resp.StatusCode != tt.response {
					t.Errorf("got %s, want %d", resp.Status, tt.response)
				}
			})
			t.Run("response over HTTP/2", func(t *testing.T) {
				addr, _, _ := h2cApp(t, 0, func(w http.ResponseWriter, _ *http.Request) {
					for line := range strings.Lines(tt.fields) {
						name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
						w.Header().Set(name, value)
					}
				})
				g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C})
				c, url := g.client(t, false)
				if resp, _ := get(t, c, url); resp.StatusCode != tt.response {
					t.Errorf("got %s, want %d", resp.Status, tt.response)
				}
			})
		})
	}
}
