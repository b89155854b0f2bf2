package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// Whether a request is sent again whose connection ends before the response.
func TestRetries(t *testing.T) {
	type upstream func(n int, c net.Conn, r *bufio.Reader, count *atomic.Int32)
	// seen reads the second request and closes the connection.
	seen := func(n int, c net.Conn, r *bufio.Reader, count *atomic.Int32) {
		for i := 0; ; i++ {
			if _, err := readRequest(r); err != nil {
				return
			}
			count.Add(1)
			if n == 0 && i == 1 {
				return
			}
			_, _ = io.WriteString(c, ok)
		}
	}
	fresh := func(_ int, _ net.Conn, r *bufio.Reader, count *atomic.Int32) {
		if _, err := readRequest(r); err == nil {
			count.Add(1)
		}
	}
	for _, tt := range []struct {
		name     string
		upstream upstream
		warm     bool // a request before makes the connection a kept one
		method   string
		body     string
		key      bool // Idempotency-Key
		status   int
		count    int32 // how many requests the endpoint has read
	}{
		{name: "GET, fresh connection", upstream: fresh, method: "GET", status: 503, count: 1},
		{name: "POST, fresh connection", upstream: fresh, method: "POST", body: "x", status: 503, count: 1},
		{name: "GET, kept connection, was read", upstream: seen, warm: true, method: "GET", status: 503, count: 2},
		{name: "HEAD, kept connection, was read", upstream: seen, warm: true, method: "HEAD", status: 503, count: 2},
		{name: "POST, kept connection, was read", upstream: seen, warm: true, method: "POST", body: "x", status: 503, count: 2},
		{name: "POST with a key, kept connection, was read", upstream: seen, warm: true, method: "POST", key: true, status: 503, count: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var count atomic.Int32
			addr := raw(t, func(n int, c net.Conn, r *bufio.Reader) { tt.upstream(n, c, r, &count) })
			g := start(t, addr)
			c, url := g.client(t)
			if tt.warm {
				if resp, _ := get(t, c, url); resp.StatusCode != 200 {
					t.Fatal(resp.Status)
				}
			}
			req, err := http.NewRequestWithContext(t.Context(), tt.method, url, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.key {
				req.Header.Set("Idempotency-Key", "1")
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != tt.status || count.Load() != tt.count {
				t.Errorf("got %d after %d requests read, want %d after %d", resp.StatusCode, count.Load(), tt.status, tt.count)
			}
			g.access.until(t, " 503 UC upstream_reset_before_response_started{connection_termination} ")
		})
	}
}

// Any method goes to the next endpoint when there was no connection; the body
// arrives there whole.
func TestConnectFailureGoesOn(t *testing.T) {
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		t.Run(method, func(t *testing.T) {
			bodies := make(chan string, 8)
			good := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					b, _ := io.ReadAll(req.Body)
					bodies <- string(b)
					_, _ = io.WriteString(c, ok)
				}
			})
			g := start(t, closed(t), good, closed(t))
			c, url := g.client(t)
			body := ""
			if method != "GET" {
				body = strings.Repeat("b", 100_000)
			}
			for range 3 {
				req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if got := within(t, "body", bodies); resp.StatusCode != 200 || got != body {
					t.Errorf("got %d, %d bytes arrived", resp.StatusCode, len(got))
				}
				g.access.until(t, " 200 - via_upstream ", good)
			}
		})
	}
}
