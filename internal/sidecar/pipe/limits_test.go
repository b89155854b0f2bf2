package pipe

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

func TestMaxConnections(t *testing.T) {
	t.Parallel()
	app := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	for _, protocol := range []Protocol{Auto, HTTP} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			p := startPipe(t, app, protocol, func(cfg *Config) {
				cfg.Inbound[0].MaxConnections = 1
				cfg.AccessLog = accesslog.New(&log, accesslog.Text)
			})
			first := dialPipe(t, p)
			first.wantOK()
			over := dialPipe(t, p, get("/over"))
			if resp := over.response("GET"); resp.StatusCode != 503 || !resp.Close || !strings.HasSuffix(bodyOf(resp), "reset reason: overflow") {
				t.Errorf("%v", resp)
			}
			over.wantEnd()
			silent := dialPipe(t, p) // is not kept forever
			silent.wantEnd()
			if s := p.Stats(); s.Overflowed != 2 || s.Connected != 1 || s.ConnectFailed != 0 {
				t.Errorf("%+v", s)
			}
			_ = first.Close()
			_ = over.Close()
			_ = silent.Close()
			awaitActivity(t, p, 0, 0)
			again := dialPipe(t, p)
			again.wantOK()
			closePipe(t, p)
			if !strings.Contains(log.String(), `"GET /over HTTP/1.1" 503 UO upstream_reset_before_response_started{overflow}`) {
				t.Errorf("the access log: %s", log.String())
			}
		})
	}
	t.Run("tcp", func(t *testing.T) {
		echo := startApp(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
		p, first := startClient(t, echo, TCP, func(cfg *Config) { cfg.MaxConnections = 1 })
		awaitActivity(t, p, 1, 1)
		dialPipe(t, p).wantEnd()
		first.send("still")
		first.expect("still")
	})
}

func TestMaxConnectionsH2(t *testing.T) {
	p := startPipe(t, startHTTP(t, func(http.ResponseWriter, *http.Request) {}), HTTP, func(cfg *Config) { cfg.MaxConnections = 1 })
	dialPipe(t, p)
	awaitActivity(t, p, 1, 0)
	r := dialRaw(t, p)
	r.request(1, true, ":path", "/")
	if got := strings.Join(r.frames(), "\n"); !strings.Contains(got, "HEADERS 1 end=true :status=503") || !strings.HasSuffix(got, "GOAWAY 1 NO_ERROR") {
		t.Errorf("got\n%s", got)
	}
	r = dialRaw(t, p)
	r.request(1, true, ":path", "/", "content-type", "application/grpc")
	r.wantAmong("grpc-status=14")
	closePipe(t, p)
	if s := p.Stats(); s.Overflowed != 2 || s.Connected != 0 {
		t.Errorf("%+v", s)
	}
}

func TestIdleTimeoutH2(t *testing.T) {
	p := startPipe(t, startHTTP(t, func(http.ResponseWriter, *http.Request) {}), HTTP, func(cfg *Config) { cfg.IdleTimeout = 100 * time.Millisecond })
	r := dialRaw(t, p)
	r.request(1, true, ":path", "/")
	if got := r.frames(); len(got) == 0 || got[len(got)-1] != "GOAWAY 1 NO_ERROR" {
		t.Errorf("got %q", got)
	}
	closePipe(t, p)
	if s := p.Stats(); s.IdleEnded != 1 {
		t.Errorf("%+v", s)
	}
}

func TestIdleTimeout(t *testing.T) {
	app := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	p := startPipe(t, app, HTTP, func(cfg *Config) { cfg.IdleTimeout = 100 * time.Millisecond })
	c, silent := dialPipe(t, p), dialPipe(t, p)
	c.send(get("/"))
	if resp := c.response("GET"); resp.StatusCode != 200 || resp.Close {
		t.Errorf("%v", resp)
	}
	c.wantEnd()
	silent.wantEnd()
	_ = c.Close()
	_ = silent.Close()
	closePipe(t, p)
	if s := p.Stats(); s.IdleEnded != 2 {
		t.Errorf("%d connections are counted as idle for too long", s.IdleEnded)
	}
}

func TestResponseTimeout(t *testing.T) {
	for _, c := range []struct{ name, answer, want string }{
		{"no response", "", "HTTP/1.1 504 Gateway Timeout"},
		{"half a response", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", "12345"},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := startApp(t, func(conn net.Conn) {
				readHead(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, c.answer)
				_, _ = conn.Read(make([]byte, 1))
			})
			p, client := startClient(t, app, HTTP, func(cfg *Config) { cfg.ResponseTimeout = 50 * time.Millisecond })
			idle := dialPipe(t, p)
			client.send(get("/"))
			if got := client.rest(); !strings.Contains(got, c.want) {
				t.Errorf("%q lacks %q", got, c.want)
			}
			_ = client.Close()
			awaitActivity(t, p, 1, 0)
			_ = idle.Close()
			if s := p.Stats(); s.ResponseTimeouts != 1 {
				t.Errorf("%d requests are counted as too slow", s.ResponseTimeouts)
			}
		})
	}
}
