package pipe

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

func TestSniff(t *testing.T) {
	cfg := Config{}
	cfg.setDefaults()
	c := &conn{p: &Pipe{cfg: cfg}, in: &listener{}}
	c.up.c = c
	for _, tt := range []struct {
		bytes string
		mode  mode
	}{
		{"GET / HTTP/1.1\r\n", modeHTTP1},
		{"get / HTTP/1.1\r\n", modeHTTP1},
		{"M-SEARCH * HTTP/1.1\r\n", modeHTTP1},
		{"foo / HTTP/1.1\n", modeHTTP1},
		{"GET / http/1.1\r\n", modeHTTP1},
		{"GET /a b HTTP/1.1\r\n", modeHTTP1}, // 400
		{"GET / HTTP/1.1 \r\n", modeHTTP1},   // 400
		{"GET / HTTP/3.0\r\n", modeHTTP1},    // 505
		{"GET\t/\tHTTP/1.1\r\n", modeHTTP1},  // 400
		{"\r\n\r\nGET / HTTP/1.1\r\n", modeHTTP1},
		{"\nGET / HTTP/1.1\r\n", modeHTTP1}, // 400, as the next three
		{"\rGET / HTTP/1.1\r\n", modeHTTP1},
		{" GET / HTTP/1.1\r\n", modeHTTP1},
		{"\t GET / HTTP/1.1\r\n", modeHTTP1},
		{"GET /" + strings.Repeat("x", DefaultMaxHead), modeHTTP1}, // 414
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", modeH2},

		{"G", undecided},
		{"ge", undecided},
		{"GET", undecided},
		{"GET ", undecided},
		{"post x", undecided},
		{"foo /", undecided},
		{"PRI * HTT", undecided},
		{"\r\nDELETE", undecided},
		{"PURGE", undecided},
		{"HELLO ", undecided},
		{"\r\n", undecided},
		{"\n", undecided},
		{" ", undecided},
		{"\x16\x03\x01", undecided},

		{"PING\r\n", opaque},                                    // Redis
		{"GET key\r\n", opaque},                                 // Redis, memcached
		{"*1\r\n$4\r\nPING\r\n", modeDatabase},                  // Redis
		{"ruok", opaque},                                        // ZooKeeper
		{"stats\r\n", opaque},                                   // memcached
		{"EHLO mail\r\n", opaque},                               // SMTP
		{"CONNECT\naccept-version:1.2\n\n\x00", opaque},         // STOMP
		{"AMQP\x00\x00\x09\x01", opaque},                        // RabbitMQ
		{"JRMI\x00\x02\x4b", opaque},                            // Java RMI
		{"8=FIX.4.2\x019=5", opaque},                            // FIX
		{"0080 0800", opaque},                                   // ISO 8583
		{"OPTIONS rtsp://x RTSP/1.0\r\n", opaque},               // RTSP
		{"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", opaque},      // the PROXY protocol
		{`::1 "GET / HTTP/1.1" 200` + "\n", opaque},             // a log line
		{`{"request":"GET / HTTP/1.1"}` + "\n", opaque},         // the same as JSON
		{"<34>1 app: GET / HTTP/1.1\n", opaque},                 // syslog
		{"HTTP/1.1\r\n", opaque},                                // one word
		{"\x00\x03\x00\x00user\x00", opaque},                    // PostgreSQL
		{strings.Repeat("A", 25), opaque},                       // a word that is too long
		{"GE\x00", opaque},                                      //
		{strings.Repeat(" ", DefaultMaxHead+1), modeHTTP1},      //
		{"A " + strings.Repeat("x", DefaultMaxHead), modeHTTP1}, //
		{"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", opaque},    // TLS, but no ClientHello
	} {
		if mode := c.up.sniff([]byte(tt.bytes)); mode != tt.mode {
			t.Errorf("%.40q: mode %d, want %d", tt.bytes, mode, tt.mode)
		}
	}
}

// What looks like HTTP is held to HTTP's limits with protocol=auto, too.
func TestAutoFollowsWhatLooksLikeHTTP(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Method) })
	t.Run("an incomplete first line", func(t *testing.T) {
		for _, part := range []string{"G", "GET", "GET / HTTP/1.", "get / HTTP/1.1\r", "post ", "\r\nGET /", "foo /bar", "PURGE", "PRI * HTTP/2.0\r\n\r\nSM\r\n"} {
			for _, protocol := range []Protocol{Auto, HTTP} {
				t.Run(protocol.String()+" "+part, func(t *testing.T) {
					t.Parallel()
					p := startPipe(t, app, protocol, func(cfg *Config) { cfg.HeadTimeout = 100 * time.Millisecond })
					c := dialPipe(t, p)
					c.send(part)
					if resp := c.response("GET"); resp.StatusCode != http.StatusRequestTimeout {
						t.Errorf("status %d", resp.StatusCode)
					}
					c.wantEnd()
					awaitActivity(t, p, 0, 0)
				})
			}
		}
	})
	t.Run("an unusual method", func(t *testing.T) {
		for _, method := range []string{"get", "Get", "purge", "foo", "M-SEARCH", "a.b"} {
			p := startPipe(t, app, Auto)
			c := dialPipe(t, p)
			c.send(method + " / HTTP/1.1\r\nHost: app\r\n\r\n")
			if got := bodyOf(c.response("GET")); got != method {
				t.Errorf("the app has got method %q, want %q", got, method)
			}
			awaitActivity(t, p, 1, 0) // not a tunnel
		}
	})
}

// An idle connection's first bytes come in pieces: the limit of a request's time counts
// from the first of its own bytes, not of an earlier request's.
func TestRequestTimeoutCountsFromItsOwnRequest(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	const limit = 300 * time.Millisecond
	p := startPipe(t, app, Auto, func(cfg *Config) { cfg.RequestTimeout = limit })
	c := dialPipe(t, p)
	c.send("GET / HTTP/1.1\r\n")
	polltest.Eventually(t, "a part of a head makes the connection busy", func() bool { return p.busy.Load() > 0 })
	c.send("Host: app\r\n\r\n")
	c.response("GET")
	time.Sleep(limit + limit/2) // the limit of the first request has passed
	c.send("POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 2\r\n\r\na")
	polltest.Eventually(t, "the second request comes", func() bool { return p.Stats().Requests >= 2 })
	c.send("b")
	if resp := c.response("POST"); resp.StatusCode != http.StatusOK || bodyOf(resp) != "ab" {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// Protocols other than HTTP work with protocol=auto, and are counted and logged.
func TestAutoPassesOtherProtocolsThrough(t *testing.T) {
	echo := func(t *testing.T) net.Addr {
		return startApp(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	}
	for _, text := range []string{"ruok", "PING\r\n", "*1\r\n", "0080 0800", "\x00\x01", "hello"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			p := startPipe(t, echo(t), Auto, func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			c := dialPipe(t, p)
			c.send(text) // the client waits for an answer: there is no more
			if _, err := io.ReadFull(c.r, make([]byte, len(text))); err != nil {
				t.Fatal(err)
			}
			awaitActivity(t, p, 1, 1)
			c.send("GET / HTTP/1.1\r\n\r\n") // it stays what it is
			_ = c.CloseWrite()
			if got := c.rest(); got != "GET / HTTP/1.1\r\n\r\n" {
				t.Errorf("got %q", got)
			}
			if n := p.Stats().Opaque[counters.OpaqueUnknown]; n != 1 {
				t.Errorf("%d connections are counted", n)
			}
			closePipe(t, p)
			if n := strings.Count(log.String(), "opaque connection (unknown)"); n != 1 {
				t.Errorf("it is logged %d times:\n%s", n, &log)
			}
		})
	}
	t.Run("the app speaks first", func(t *testing.T) {
		t.Parallel()
		const n = 50 // the client's first bytes and the app's race
		app := startApp(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "220 ready\r\n")
			_, _ = io.Copy(c, c)
		})
		p := startPipe(t, app, Auto)
		for range n {
			c := dialPipe(t, p)
			c.send("GET /")
			if _, err := io.ReadFull(c.r, make([]byte, len("220 ready\r\nGET /"))); err != nil {
				t.Fatal(err)
			}
			_ = c.CloseWrite()
			c.wantEnd()
		}
		if counted := p.Stats().Opaque[counters.OpaqueServerFirst]; counted != n {
			t.Errorf("%d of %d connections are counted", counted, n)
		}
	})
}
