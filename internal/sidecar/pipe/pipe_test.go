package pipe

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %d %s", r.Method, r.URL, len(b), r.Header.Get("Connection"))
}

func TestMessages(t *testing.T) {
	app := startHTTP(t, echo)
	for _, protocol := range []Protocol{Auto, HTTP} {
		t.Run(protocol.String(), func(t *testing.T) {
			p, c := startClient(t, app, protocol)
			for _, tt := range []struct{ name, method, send, want string }{
				{"GET", "GET", get("/a"), "GET /a 0 "},
				{"again", "GET", get("/b"), "GET /b 0 "},
				{"HEAD", "HEAD", "HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n", ""},
				{"length", "POST", "POST /l HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "POST /l 5 "},
				{"chunked", "POST", "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n", "POST /c 5 "},
				{"empty lines before", "GET", "\r\n\r\n" + get("/e"), "GET /e 0 "},
				{"large", "POST", "POST /big HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + strings.Repeat("x", 3000000), "POST /big 3000000 "},
				{"long field", "GET", "GET /f HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 50000) + "\r\n\r\n", "GET /f 0 "},
			} {
				c.send(tt.send)
				resp := c.response(tt.method)
				if got := bodyOf(resp); resp.StatusCode != 200 || got != tt.want {
					t.Fatalf("%s: %d %q; want 200 %q", tt.name, resp.StatusCode, got, tt.want)
				}
			}
			awaitActivity(t, p, 1, 0)
			_ = c.Close()
			awaitActivity(t, p, 0, 0)
		})
	}
}

func TestInterimResponses(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		b, _ := io.ReadAll(r.Body) // sends 100
		_, _ = w.Write(b)
	})
	c := dialPipe(t, startPipe(t, app, HTTP))
	c.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	for _, want := range []int{103, 100} {
		if resp := c.head(); resp.StatusCode != want {
			t.Fatalf("got %v; want %d", resp, want)
		}
	}
	c.send("ok")
	if got := bodyOf(c.response("POST")); got != "ok" {
		t.Fatalf("got %q", got)
	}
}

func TestUntilClose(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		readHead(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nall of it")
	})
	p, c := startClient(t, app, HTTP)
	c.send(get("/"))
	if got := c.rest(); got != "HTTP/1.1 200 OK\r\n\r\nall of it" {
		t.Fatalf("got %q", got)
	}
	awaitActivity(t, p, 0, 0)
}

func TestUpgrade(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			head := readHead(r)
			switch {
			case strings.Contains(head, "Upgrade: no"):
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
			case head != "":
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: yes\r\nConnection: Upgrade\r\n\r\nhello")
				_, _ = io.Copy(c, r)
				return
			default:
				return
			}
		}
	})
	p := startPipe(t, app, HTTP)

	t.Run("refused", func(t *testing.T) {
		c := dialPipe(t, p)
		for range 2 { // with the next request sent ahead
			c.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: no\r\n\r\n")
		}
		for range 2 {
			if got := bodyOf(c.response("GET")); got != "no" {
				t.Fatalf("got %q", got)
			}
		}
		awaitActivity(t, p, 1, 0)
		_ = c.Close()
		awaitActivity(t, p, 0, 0)
	})
	t.Run("accepted", func(t *testing.T) {
		c := dialPipe(t, p)
		c.send("GET /up HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: yes\r\n\r\nsent ahead\x00\xff")
		c.switches()
		awaitActivity(t, p, 1, 1)
		_ = c.CloseWrite()
		if got := c.rest(); got != "hellosent ahead\x00\xff" {
			t.Fatalf("got %q", got)
		}
		awaitActivity(t, p, 0, 0)
	})
}

func TestConnect(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		readHead(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 Tunnel\r\n\r\n")
		_, _ = io.Copy(c, r)
	})
	for _, protocol := range []Protocol{Auto, HTTP} {
		p := startPipe(t, app, protocol)
		cut, c := dialPipe(t, p), dialPipe(t, p)
		cut.send("CONNECT far:1 HTTP/1.1\r\nHost: far:1\r\n\r\n")
		cut.head()
		c.send("CONNECT far:1 HTTP/1.1\r\nHost: far:1\r\n\r\n")
		c.send("GET is no request here")
		_ = c.CloseWrite()
		if got := c.rest(); got != "HTTP/1.1 200 Tunnel\r\n\r\nGET is no request here" {
			t.Fatalf("got %q", got)
		}
		awaitActivity(t, p, 1, 1)
		if n := p.Stats().Opaque[counters.OpaqueConnect]; n != 2 {
			t.Errorf("%d tunnels are counted", n)
		}
		if left := lastCall(t, p, 10*time.Millisecond)(); len(left) != 1 || left[0].Ending != "fin" || left[0].Protocol != "tcp" {
			t.Errorf("the report has %+v", left)
		}
	}
}

func TestOpaque(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, tt := range []struct {
		name     string
		protocol Protocol
		greeting string
		send     []byte
	}{
		{"the server speaks first", Auto, "220 mail\r\n", []byte("EHLO a\r\n")},
		{"the server speaks first, as configured", TCP, "220 mail\r\n", []byte("EHLO a\r\n")},
		{"binary", Auto, "", append([]byte{0x16, 3, 1}, big...)},
		{"large", TCP, "", big},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app := startApp(t, func(c net.Conn) {
				_, _ = io.WriteString(c, tt.greeting)
				_, _ = io.Copy(c, c)
			})
			p, c := startClient(t, app, tt.protocol)
			if tt.greeting != "" {
				c.expect(tt.greeting)
				awaitActivity(t, p, 1, 1)
			}
			go func() { _, _ = c.Write(tt.send); _ = c.CloseWrite() }()
			if got := c.rest(); got != string(tt.send) {
				t.Fatalf("%d bytes came back of %d", len(got), len(tt.send))
			}
			awaitActivity(t, p, 0, 0)
		})
	}
}

// A connection to an HTTP app is made when a request comes, not before: an app
// that serves one connection at a time must not be occupied by a silent one.
func TestSilentConnectionsDoNotOccupyTheApp(t *testing.T) {
	accepted := make(chan struct{}, 10)
	app := startApp(t, func(c net.Conn) {
		accepted <- struct{}{}
		r := bufio.NewReader(c)
		readHead(r)
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		readHead(r)
	})
	p := startPipe(t, app, HTTP)
	_, second := dialPipe(t, p), dialPipe(t, p)
	awaitActivity(t, p, 2, 0)
	second.send(get("/"))
	second.response("GET")
	if n := len(accepted); n != 1 {
		t.Fatalf("the app has %d connections; want 1", n)
	}
}

const closing = "GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n"

// The connection of a client that announces the close ends with its response, whether or not the client ends it.
func TestClientAnnouncesClose(t *testing.T) {
	p := startPipe(t, startHTTP(t, echo), HTTP)
	for range 2 * spareWorkers {
		c := dialPipe(t, p, closing)
		if resp := c.response(http.MethodGet); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		c.wantEnd()
		awaitNone(t, p)
	}
	if n := p.spare.Load(); n < 1 || n > spareWorkers {
		t.Errorf("%d goroutines wait for a connection", n)
	}
}

// A response that comes late or in parts, and bytes that a client must not send, change nothing for the client.
func TestClientAnnouncesCloseSlowly(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{0, aloneTime / 2, 2 * aloneTime} {
		for _, extra := range []string{"", "\r\n", get("/more"), strings.Repeat(get("/more"), 1000)} {
			app := startApp(t, func(c net.Conn) {
				readHead(bufio.NewReader(c))
				for _, part := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n", "\r\nab", "cdef"} {
					time.Sleep(pause)
					_, _ = io.WriteString(c, part)
				}
			})
			p, c := startClient(t, app, HTTP)
			c.send(closing + extra)
			if got := bodyOf(c.response(http.MethodGet)); got != "abcdef" {
				t.Errorf("pause %v, %d bytes more: %q", pause, len(extra), got)
			}
			c.wantEnd()
			_ = c.Close()
			awaitNone(t, p)
		}
	}
}

// The app learns that a client has gone whose response it has not begun.
func TestClientAnnouncesCloseAndGoes(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"FIN", "reset"} {
		var goes atomic.Bool
		app := startScripted(t, "")
		app.resets = how == "reset"
		p, c := startClient(t, app, HTTP)
		c.send(closing)
		ended := <-app.conn
		if how == "reset" {
			_ = c.SetLinger(0)
		}
		time.AfterFunc(aloneTime/2, func() {
			goes.Store(true)
			_ = c.Close()
		})
		<-app.got
		if !goes.Load() {
			t.Errorf("%s: the app's connection ended first", how)
		}
		_ = ended.Close()
		awaitNone(t, p)
	}
}

// During a drain the connection stays until the client has acknowledged its response.
func TestClientAnnouncesCloseInADrain(t *testing.T) {
	g, p, c := startWaiting(t, closing)
	_ = p.Drain(ctx)
	g.open()
	if resp := c.response(http.MethodGet); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	c.wantEnd()
	if n := len(p.all()); n != 1 {
		t.Errorf("%d connections, want the one whose client has not sent its FIN", n)
	}
	_ = c.Close()
	awaitNone(t, p)
}

// With Auto, a client whose bytes have come with its connection decides before the app is connected to.
func TestAutoWithBytesAtOnce(t *testing.T) {
	closed := refused(t)
	echoes := startApp(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	for _, row := range []struct {
		app          net.Addr
		sent, answer string
	}{
		{startHTTP(t, echo), closing, "HTTP/1.1 200 OK\r\n"},
		{startHTTP(t, echo), get("/"), "HTTP/1.1 200 OK\r\n"},
		{echoes, "\x00\x01hello", "\x00\x01hello"},
		{closed, closing, "HTTP/1.1 503 Service Unavailable\r\n"},
		{closed, "\x00\x01hello", ""},
	} {
		ln := nettest.Listen(t, "127.0.0.1:0")
		conn, err := net.Dial("tcp", ln.Addr().String())
		must.Do(t, err)
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, row.sent)
		_ = conn.(*net.TCPConn).CloseWrite()
		p := startPipe(t, row.app, Auto, func(c *Config) { c.open = func(string, string) (net.Listener, error) { return ln, nil } })
		got, err := io.ReadAll(conn)
		if isReset(err) != (row.answer == "") || !strings.HasPrefix(string(got), row.answer) {
			t.Errorf("%q is answered with %q, %v; want %q", row.sent, got, err, row.answer)
		}
		_ = conn.Close()
		awaitNone(t, p)
	}
}
