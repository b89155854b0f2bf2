package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// Each local reply, byte for byte, with its access log line and the log lines that guides quote. All was recorded from
// Envoy 1.40 with Istio's default retries.
func TestLocalReplies(t *testing.T) {
	writes := func(text string) func(int, net.Conn, *bufio.Reader) {
		return func(_ int, c net.Conn, r *bufio.Reader) {
			if _, err := readRequest(r); err == nil {
				_, _ = io.WriteString(c, text)
			}
		}
	}
	resets := func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := readRequest(r); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	}
	const reset = "upstream connect error or disconnect/reset before headers. "
	for _, tt := range []struct {
		name      string
		endpoints func(*testing.T) []string
		status    int
		body      string
		logged    string // status, flag and details
		log       []string
	}{
		{
			name: "no endpoints", endpoints: func(*testing.T) []string { return nil },
			status: 503, body: "no healthy upstream", logged: " 503 UH no_healthy_upstream - ",
		},
		{
			name:      "none accepts the connection",
			endpoints: func(t *testing.T) []string { return []string{closed(t), closed(t)} },
			status:    503, body: reset + "retried and the latest reset reason: remote connection failure",
			logged: ` 503 URX,UF upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:` +
				`_Connection_refused} - "delayed_connect_error:_Connection_refused" `,
			log: []string{"connection refused by endpoint", "connection refused by endpoint", "upstream reset: reset reason: remote connection failure"},
		},
		{
			name:      "closed before the head",
			endpoints: func(t *testing.T) []string { return []string{raw(t, writes(""))} },
			status:    503, body: reset + "reset reason: connection termination",
			logged: " 503 UC upstream_reset_before_response_started{connection_termination} - ",
			log:    []string{"upstream reset: reset reason: connection termination"},
		},
		{
			name:      "reset before the head",
			endpoints: func(t *testing.T) []string { return []string{raw(t, resets)} },
			status:    503, body: reset + "reset reason: connection termination",
			logged: " 503 UC upstream_reset_before_response_started{connection_termination} - ",
		},
		{
			name:      "closed in the head",
			endpoints: func(t *testing.T) []string { return []string{raw(t, writes("HTTP/1.1 200 OK\r\nContent-"))} },
			status:    502, body: reset + "reset reason: protocol error",
			logged: " 502 UPE upstream_reset_before_response_started{protocol_error} - ",
		},
		{
			name:      "no HTTP",
			endpoints: func(t *testing.T) []string { return []string{raw(t, writes("220 mail.example ESMTP\r\n"))} },
			status:    502, body: reset + "reset reason: protocol error",
			logged: " 502 UPE upstream_reset_before_response_started{protocol_error} - ",
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
			want := fmt.Sprintf("map[Content-Length:[%d] Content-Type:[text/plain] Server:[envoy]]", len(tt.body))
			if got := fmt.Sprint(h); got != want {
				t.Errorf("headers %s, want %s", got, want)
			}
			g.access.until(t, tt.logged)
			for _, want := range tt.log {
				g.log.until(t, `msg="`+want+`"`, "level=DEBUG")
			}
		})
	}
}

func TestLocalReplyToHead(t *testing.T) {
	g := start(t)
	c, url := g.client(t)
	resp, err := c.Head(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 503 || resp.ContentLength != 19 {
		t.Errorf("got %d, length %d", resp.StatusCode, resp.ContentLength)
	}
	g.access.until(t, ` 503 UH no_healthy_upstream - "-" 0 0 `)
}

// The client detects an end in the middle of a body.
func TestBreakInTheBody(t *testing.T) {
	for _, head := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
		t.Run(head[:7], func(t *testing.T) {
			addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if _, err := readRequest(r); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
				}
			})
			g := start(t, addr)
			c, url := g.client(t)
			resp, err := c.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil || string(body) != "half" {
				t.Errorf("got %q, %v: want half and an error", body, err)
			}
			g.access.until(t, " 200 UPE upstream_reset_after_response_started{protocol_error} ")
		})
	}
}

// When a client closes its connection, its request ends at the endpoint too.
func TestClientGone(t *testing.T) {
	for _, tt := range []struct {
		name, answer, logged string
	}{
		{"before the response", "", " 0 DC downstream_remote_disconnect "},
		{"in the response", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", " 200 DC downstream_remote_disconnect "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arrived, gone := make(chan struct{}, 1), make(chan struct{}, 1)
			addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
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
			if err != nil {
				t.Fatal(err)
			}
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
			g.access.until(t, tt.logged)
		})
	}
}

// A client that closes its connection in the middle of its own body is no fault of the endpoint's.
func TestClientGoneInItsBody(t *testing.T) {
	g := start(t, raw(t, answers))
	c := dial(t, g.addr)
	send(t, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	_ = c.Close()
	g.access.until(t, ` 0 DC downstream_remote_disconnect - "-" 4 0 `)
}

// A connection whose end the gateway learns of before it writes to it: the request uses another one, with its body.
func TestUnsentRequest(t *testing.T) {
	near, far := pair(t)
	a := &attempt{cancel: func(error) { t.Error("the request is cancelled") }, conn: near, reused: true}
	near.carry(a)
	_ = far.Close()
	if n, err := near.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("read %d, %v", n, err)
	}
	if !a.isUnsent() {
		t.Error("the request may not be sent again")
	}
	_, _ = io.WriteString(near, "G")
	if a.isUnsent() {
		t.Error("the request may be sent again after a write")
	}
	body := &attemptBody{ReadCloser: io.NopCloser(strings.NewReader("body"))}
	if body.isTaken() {
		t.Error("nothing of the body was read")
	}
	if _, err := body.Read(make([]byte, 1)); err == nil {
		t.Error("the attempt that has ended may read the next one's body")
	}
}

// pair is a connection to an endpoint and its other end.
func pair(t *testing.T) (*conn, net.Conn) {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	return &conn{TCPConn: near.(*net.TCPConn)}, far
}
