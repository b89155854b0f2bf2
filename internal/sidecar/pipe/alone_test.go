package pipe

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

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
		must(t, err)
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, row.sent)
		_ = conn.(*net.TCPConn).CloseWrite()
		p := startPipe(t, row.app, Auto, func(c *Config) { c.open = func(string, string) (net.Listener, error) { return ln, nil } })
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), row.answer) || row.answer == "" && len(got) > 0 {
			t.Errorf("%q is answered with %q, %v; want %q", row.sent, got, err, row.answer)
		}
		_ = conn.Close()
		awaitNone(t, p)
	}
}
