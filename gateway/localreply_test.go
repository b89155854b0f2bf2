package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Each local reply, over each protocol, byte for byte; with its access-log line
// and the log lines that guides quote. All was recorded from Envoy 1.40 with Istio's
// default retries.
func TestLocalReplies(t *testing.T) {
	hang := func(_ int, _ net.Conn, r *bufio.Reader) {
		if _, err := readRequest(r); err == nil {
			_, _ = r.ReadByte() // until the gateway leaves
		}
	}
	say := func(text string) func(int, net.Conn, *bufio.Reader) {
		return func(_ int, c net.Conn, r *bufio.Reader) {
			if _, err := readRequest(r); err == nil {
				_, _ = io.WriteString(c, text)
			}
		}
	}
	resetIt := func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := readRequest(r); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	}
	for _, tt := range []struct {
		name      string
		endpoints func(*testing.T) []string
		timeout   time.Duration
		attempts  int
		status    int
		body      string
		logged    string // flag and details
		log       []string
	}{
		{
			name: "no endpoints", endpoints: func(*testing.T) []string { return nil },
			status: 503, body: "no healthy upstream", logged: " 503 UH no_healthy_upstream - ",
			log: []string{"Sending local reply with details no_healthy_upstream"},
		},
		{
			name: "none takes the connection", endpoints: func(t *testing.T) []string { return []string{closed(t), closed(t)} },
			status: 503, body: "upstream connect error or disconnect/reset before headers. retried and the latest reset reason: remote connection failure",
			logged: ` 503 URX,UF upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused} - "delayed_connect_error:_Connection_refused" `,
			log: []string{
				"upstream reset: reset reason: remote connection failure", "upstream reset: reset reason: remote connection failure", "upstream reset: reset reason: remote connection failure",
				"Sending local reply with details upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused}",
			},
		},
		{
			name: "it does not take the connection, no retry", endpoints: func(t *testing.T) []string { return []string{closed(t)} }, attempts: 1,
			status: 503, body: "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure",
			logged: ` 503 UF upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused} - "delayed_connect_error:_Connection_refused" `,
		},
		{
			name: "closed before the head", endpoints: func(t *testing.T) []string { return []string{raw(t, say(""))} },
			status: 503, body: "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
			logged: " 503 UC upstream_reset_before_response_started{connection_termination} - ",
			log:    []string{"upstream reset: reset reason: connection termination", "Sending local reply with details upstream_reset_before_response_started{connection_termination}"},
		},
		{
			name: "reset before the head", endpoints: func(t *testing.T) []string { return []string{raw(t, resetIt)} },
			status: 503, body: "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
			logged: " 503 UC upstream_reset_before_response_started{connection_termination} - ",
		},
		{
			name: "closed after an interim response", endpoints: func(t *testing.T) []string { return []string{raw(t, say("HTTP/1.1 102 Processing\r\n\r\n"))} },
			status: 503, body: "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
			logged: " 503 UC upstream_reset_before_response_started{connection_termination} - ",
		},
		{
			name: "closed in the head", endpoints: func(t *testing.T) []string { return []string{raw(t, say("HTTP/1.1 200 OK\r\nContent-"))} },
			status: 502, body: "upstream connect error or disconnect/reset before headers. reset reason: protocol error",
			logged: " 502 UPE upstream_reset_before_response_started{protocol_error} - ",
		},
		{
			name: "no HTTP", endpoints: func(t *testing.T) []string { return []string{raw(t, say("220 mail.example ESMTP\r\n"))} },
			status: 502, body: "upstream connect error or disconnect/reset before headers. reset reason: protocol error",
			logged: " 502 UPE upstream_reset_before_response_started{protocol_error} - ",
		},
		{
			name: "timeout", endpoints: func(t *testing.T) []string { return []string{raw(t, hang)} }, timeout: 50 * time.Millisecond,
			status: 504, body: "upstream request timeout", logged: " 504 UT response_timeout - ",
			log: []string{"Sending local reply with details response_timeout"},
		},
	} {
		for _, proto := range []string{"HTTP/1.1", "HTTP/1.1 over TLS", "HTTP/2"} {
			t.Run(tt.name+", "+proto, func(t *testing.T) {
				o := setup{Endpoints: tt.endpoints(t), RequestTimeout: tt.timeout, MaxAttempts: tt.attempts}
				if proto != "HTTP/1.1" {
					o.Certificates = selfSigned(t)
				}
				g := start(t, o)
				c, url := g.client(t, proto == "HTTP/2")
				resp, body := get(t, c, url+"/delay/10")
				if resp.StatusCode != tt.status || body != tt.body {
					t.Errorf("got %d %q, want %d %q", resp.StatusCode, body, tt.status, tt.body)
				}
				if want := strings.TrimSuffix(proto, " over TLS"); !strings.HasPrefix(resp.Proto, want) {
					t.Errorf("protocol %s, want %s", resp.Proto, want)
				}
				h := resp.Header
				if h.Get("Date") == "" {
					t.Error("no date")
				}
				h.Del("Date")
				if got, want := fmt.Sprint(h), fmt.Sprintf("map[Content-Length:[%d] Content-Type:[text/plain] Server:[envoy]]", len(tt.body)); got != want {
					t.Errorf("headers %s, want %s", got, want)
				}
				if line := g.access.next(t); !strings.Contains(line, tt.logged) {
					t.Errorf("access log %q, want %q", line, tt.logged)
				}
				for _, want := range tt.log {
					g.log.until(t, `msg="`+want+`"`, "level=DEBUG")
				}
			})
		}
	}
}

// The head on the wire, as in the recording of Envoy but for net/http's capitals.
func TestLocalReplyOnTheWire(t *testing.T) {
	g := start(t, setup{})
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.SplitSeq(string(all), "\r\n") {
		if !strings.HasPrefix(line, "Date: ") {
			kept = append(kept, line)
		}
	}
	want := "HTTP/1.1 503 Service Unavailable|Content-Length: 19|Content-Type: text/plain|Server: envoy|Connection: close||no healthy upstream"
	if got := strings.Join(kept, "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLocalReplyToHead(t *testing.T) {
	g := start(t, setup{})
	c, url := g.client(t, false)
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

// A break in the middle of a body must be seen as one.
func TestBreakInTheBody(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, head := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
			t.Run(fmt.Sprintf("h2=%v %s", h2, head[:7]), func(t *testing.T) {
				addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
					if _, err := readRequest(r); err == nil {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
					}
				})
				g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t)})
				c, url := g.client(t, h2)
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
}

func TestBadRequestBody(t *testing.T) {
	addr := raw(t, answers)
	g := start(t, setup{Endpoints: []string{addr}})
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 400 || string(body) != "Bad Request" || !resp.Close || err != nil {
		t.Errorf("got %d %q, closing %v, %v", resp.StatusCode, body, resp.Close, err)
	}
	g.access.until(t, " 400 DPE http1.codec_error ")
}

// gRPC's clients look at grpc-status, whatever the HTTP status says.
func TestLocalReplyToGRPC(t *testing.T) {
	for _, tt := range []struct {
		name      string
		endpoints []string
		code      string
		message   string
		logged    string
	}{
		{"no endpoints", nil, "14", "no healthy upstream", " 200 UH no_healthy_upstream "},
		{"the response is not HTTP", []string{raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
			if _, err := readRequest(r); err == nil {
				_, _ = io.WriteString(c, "nonsense\r\n\r\n")
			}
		})}, "14", "upstream connect error or disconnect/reset before headers. reset reason: protocol error", " 200 UPE "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := start(t, setup{Endpoints: tt.endpoints, Certificates: selfSigned(t)})
			c, url := g.client(t, true)
			resp, err := c.Post(url+"/shop.Cart/Add", "application/grpc", strings.NewReader("\x00\x00\x00\x00\x00"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			h := resp.Header
			if resp.StatusCode != 200 || h.Get("Grpc-Status") != tt.code || h.Get("Grpc-Message") != tt.message || h.Get("Content-Type") != "application/grpc" {
				t.Errorf("%s %v", resp.Status, h)
			}
			g.access.until(t, tt.logged)
		})
	}
}
