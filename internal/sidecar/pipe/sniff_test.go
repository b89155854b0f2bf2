package pipe

import (
	"bytes"
	"fmt"
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
	for want, all := range map[mode][]string{
		modeHTTP1: {
			"GET / HTTP/1.1\r\n", "get / HTTP/1.1\r\n", "M-SEARCH * HTTP/1.1\r\n", "foo / HTTP/1.1\n",
			"GET / http/1.1\r\n",
			"GET /a b HTTP/1.1\r\n", // 400
			"GET / HTTP/1.1 \r\n",   // 400
			"GET / HTTP/3.0\r\n",    // 505
			"GET\t/\tHTTP/1.1\r\n",  // 400
			"\r\n\r\nGET / HTTP/1.1\r\n",
			"\nGET / HTTP/1.1\r\n", // 400, as the next three
			"\rGET / HTTP/1.1\r\n", " GET / HTTP/1.1\r\n", "\t GET / HTTP/1.1\r\n",
			"GET /" + strings.Repeat("x", DefaultMaxHead), // 414
			strings.Repeat(" ", DefaultMaxHead+1), "A " + strings.Repeat("x", DefaultMaxHead),
		},
		modeH2: {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		undecided: {
			"G", "ge", "GET", "GET ", "post x", "foo /", "PRI * HTT", "\r\nDELETE", "PURGE", "HELLO ", "\r\n",
			"\n", " ", "\x16\x03\x01",
		},
		opaque: {
			"PING\r\n",                               // Redis
			"GET key\r\n",                            // Redis, memcached
			"ruok",                                   // ZooKeeper
			"stats\r\n",                              // memcached
			"EHLO mail\r\n",                          // SMTP
			"CONNECT\naccept-version:1.2\n\n\x00",    // STOMP
			"AMQP\x00\x00\x09\x01",                   // RabbitMQ
			"JRMI\x00\x02\x4b",                       // Java RMI
			"8=FIX.4.2\x019=5",                       // FIX
			"0080 0800",                              // ISO 8583
			"OPTIONS rtsp://x RTSP/1.0\r\n",          // RTSP
			"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", // the PROXY protocol
			`::1 "GET / HTTP/1.1" 200` + "\n",        // a log line
			`{"request":"GET / HTTP/1.1"}` + "\n",    // the same as JSON
			"<34>1 app: GET / HTTP/1.1\n",            // syslog
			"HTTP/1.1\r\n",                           // one word
			"\x00\x03\x00\x00user\x00",               // PostgreSQL
			strings.Repeat("A", 25),                  // a word that is too long
			"GE\x00",
			"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", // TLS, but no ClientHello
		},
		modeDatabase: {"*1\r\n$4\r\nPING\r\n"}, // Redis
	} {
		for _, b := range all {
			if got := c.up.sniff([]byte(b)); got != want {
				t.Errorf("%.40q: mode %d, want %d", b, got, want)
			}
		}
	}
}

// What looks like HTTP is held to HTTP's limits with protocol=auto, too.
func TestAutoFollowsWhatLooksLikeHTTP(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Method) })
	t.Run("an incomplete first line", func(t *testing.T) {
		for _, part := range []string{"G", "GET", "GET / HTTP/1.", "get / HTTP/1.1\r", "post ", "\r\nGET /", "foo /bar", "PURGE", "PRI * HTTP/2.0\r\n\r\nSM\r\n"} {
			t.Run(part, func(t *testing.T) {
				t.Parallel()
				p := startPipe(t, app, HTTP, func(cfg *Config) { cfg.HeadTimeout = 100 * time.Millisecond })
				c := dialPipe(t, p, part)
				if resp := c.response("GET"); resp.StatusCode != http.StatusRequestTimeout {
					t.Errorf("status %d", resp.StatusCode)
				}
				c.wantEnd()
				awaitActivity(t, p, 0, 0)
			})
		}
	})
	t.Run("an incomplete first line where the app has answered HTTP", func(t *testing.T) {
		for _, part := range []string{"GET", "GET / HTTP/1.", "foo /bar", "PRI * HTTP/2.0\r\n\r\nSM\r\n"} {
			t.Run(part, func(t *testing.T) {
				t.Parallel()
				p, first := startClient(t, app, Auto, func(cfg *Config) { cfg.HeadTimeout = 100 * time.Millisecond })
				first.wantOK()
				c := dialPipe(t, p, part)
				if resp := c.response("GET"); resp.StatusCode != http.StatusRequestTimeout {
					t.Errorf("status %d", resp.StatusCode)
				}
				c.wantEnd()
			})
		}
	})
	t.Run("the rest of a head after its first line", func(t *testing.T) {
		t.Parallel()
		p := startPipe(t, app, Auto, func(cfg *Config) { cfg.HeadTimeout = 2 * sniffTime })
		c := dialPipe(t, p, "GE")
		polltest.Eventually(t, "it has come", func() bool { return p.busy.Load() > 0 })
		c.send("T / HTTP/1.1\r\n")
		if resp := c.response("GET"); resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("status %d", resp.StatusCode)
		}
		c.wantEnd()
	})
	t.Run("an unusual method", func(t *testing.T) {
		for _, method := range []string{"get", "Get", "purge", "foo", "M-SEARCH", "a.b"} {
			p, c := startClient(t, app, Auto)
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
	for range 5 { // a machine that stops this test for the limit fails one of them
		p, c := startClient(t, app, Auto, func(cfg *Config) { cfg.RequestTimeout = limit })
		c.send("GET / HTTP/1.1\r\n")
		polltest.Eventually(t, "a part of a head makes the connection busy", func() bool { return p.busy.Load() > 0 })
		_, _ = io.WriteString(c, "Host: app\r\n\r\n")
		if c.response("GET").StatusCode != http.StatusOK {
			continue
		}
		time.Sleep(limit + limit/2) // the limit of the first request has passed
		c.send("POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 2\r\n\r\na")
		polltest.Eventually(t, "the second request comes", func() bool { return p.Stats().Requests >= 2 })
		_, _ = io.WriteString(c, "b")
		if resp := c.response("POST"); resp.StatusCode == http.StatusOK && bodyOf(resp) == "ab" {
			return
		}
	}
	t.Error("no second request was answered")
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
			c.expect(text)
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
	// A FIN decides, and else a second.
	for _, word := range []string{"PING", "GET", "D", "\x16\x03", "\r\n", "GET / HTTP/1.", "PRI * HTTP/2.0\r\n\r\nSM\r\n"} {
		for how, halfCloses := range map[string]bool{"FIN": true, "pause": false} {
			t.Run(fmt.Sprintf("%q, %s", word, how), func(t *testing.T) {
				t.Parallel()
				p := startPipe(t, echo(t), Auto)
				c := dialPipe(t, p, word)
				if !halfCloses {
					c.expect(word)
					c.send("GET / HTTP/1.1\r\n\r\n")
				}
				_ = c.CloseWrite()
				if got := c.rest(); halfCloses && got != word || !halfCloses && got != "GET / HTTP/1.1\r\n\r\n" {
					t.Errorf("got %q", got)
				}
				awaitNone(t, p)
			})
		}
	}
	// The first bytes of an app that may be HTTP/2's are held no longer than they may.
	for _, word := range []string{"\x00", "\x00\x00\x06\x04\x00\x00\x00\x00", "\x00\x01", "\x00\x00\x06\x04\x00\x00\x00\x00\x01rest"} {
		for how, ends := range map[string]bool{"FIN": true, "pause": false} {
			t.Run(fmt.Sprintf("the app's %q, %s", word, how), func(t *testing.T) {
				t.Parallel()
				app := startApp(t, func(c net.Conn) {
					_, _ = io.WriteString(c, word)
					if !ends {
						_, _ = io.Copy(c, c)
					}
				})
				p := startPipe(t, app, Auto)
				c := dialPipe(t, p)
				c.expect(word)
				if !ends {
					c.send("echo")
					c.expect("echo")
				}
				_ = c.CloseWrite()
				c.wantEnd()
				awaitNone(t, p)
			})
		}
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
			c := dialPipe(t, p, "GET /")
			c.expect("220 ready\r\nGET /")
			_ = c.CloseWrite()
			c.wantEnd()
		}
		if counted := p.Stats().Opaque[counters.OpaqueServerFirst]; counted != n {
			t.Errorf("%d of %d connections are counted", counted, n)
		}
	})
}
