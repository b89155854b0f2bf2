package pipe

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
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
	p := startPipe(t, startHTTP(t, func(http.ResponseWriter, *http.Request) {}), HTTP, func(cfg *Config) { cfg.IdleTimeout = 500 * time.Millisecond })
	r := dialRaw(t, p)
	r.request(1, true, ":path", "/")
	if got := r.frames(); len(got) == 0 || got[len(got)-1] != "GOAWAY 1 NO_ERROR" {
		t.Errorf("got %q", got)
	}
	closePipe(t, p)
	polltest.Eventually(t, "it is counted, when its client knows", func() bool { return p.Stats().IdleEnded == 1 })
}

func TestIdleTimeout(t *testing.T) {
	app := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	p := startPipe(t, app, HTTP, func(cfg *Config) { cfg.IdleTimeout = 500 * time.Millisecond })
	c := dialPipe(t, p, get("/"))
	silent := dialPipe(t, p)
	if resp := c.response("GET"); resp.StatusCode != 200 || resp.Close {
		t.Errorf("%v", resp)
	}
	c.wantEnd()
	silent.wantEnd()
	_ = c.Close()
	_ = silent.Close()
	closePipe(t, p)
	polltest.Eventually(t, "both are counted", func() bool { return p.Stats().IdleEnded == 2 })
}

func TestResponseTimeout(t *testing.T) {
	for _, c := range []struct{ name, answer, want string }{
		{"no response", "", "HTTP/1.1 504 Gateway Timeout"},
		{"half a response", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", "12345"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			app := startApp(t, func(conn net.Conn) {
				readHead(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, c.answer)
				_, _ = conn.Read(make([]byte, 1))
			})
			p, client := startClient(t, app, HTTP, func(cfg *Config) { cfg.ResponseTimeout = time.Second })
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

// Idle connections shed the stacks that messages have made grow, and serve on; a
// drain ends them as any other.
func TestShed(t *testing.T) {
	const many = 300
	p := startPipe(t, startHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), HTTP)
	clients := make([]*client, many)
	for i := range clients {
		clients[i] = dialPipe(t, p)
		clients[i].wantOK()
	}
	for _, c := range p.all() {
		c.mu.Lock()
		c.idleSince = time.Now().Add(-2 * shedAfter)
		c.mu.Unlock()
	}
	p.shedStacks()
	for _, way := range []string{"(*up).serveUp", "(*conn).serveDown"} {
		polltest.NoError(t, func() error {
			if n := startedBy(way); n < many {
				return fmt.Errorf("%d of %d continue in new goroutines (%s)", n, many, way)
			}
			return nil
		})
	}
	for _, c := range clients {
		c.wantOK()
	}
	must.Do(t, p.CloseIdle(ctx, 0))
	for _, c := range clients {
		c.wantEnd()
	}
}

// A connection that is used does not shed: neither one with a request in flight nor one that has
// been idle for a moment only.
func TestShedNotInUse(t *testing.T) {
	inFlight, release := make(chan struct{}), make(chan struct{})
	p := startPipe(t, startHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(inFlight)
			<-release
		}
	}), HTTP)
	dialPipe(t, p).wantOK()
	waits := dialPipe(t, p, get("/wait"))
	<-inFlight // busy alone would not do: the connection is so before its stacks have grown
	awaitActivity(t, p, 2, 1)
	for _, c := range p.all() {
		c.mu.Lock()
		c.idleSince = time.Now() // however slow this test was
		if c.busy {
			c.idleSince = c.idleSince.Add(-2 * shedAfter)
		}
		c.mu.Unlock()
		if shed, later := c.shed(); shed || !later {
			t.Error("a connection in use sheds")
		}
	}
	close(release)
	waits.response("GET")
}

// A nudge does not put off a deadline, nor bring it forward.
func TestNudgeKeepsDeadline(t *testing.T) {
	const timeout = 300 * time.Millisecond
	p := startPipe(t, startHTTP(t, func(http.ResponseWriter, *http.Request) {}), HTTP, func(c *Config) { c.HeadTimeout = timeout })
	client := dialPipe(t, p)
	client.wantOK()
	began := time.Now()
	client.send("GET / HT")
	awaitActivity(t, p, 1, 1)
	for range 20 {
		p.all()[0].client.Wake()
		time.Sleep(time.Millisecond)
	}
	answer := client.rest()
	if took := time.Since(began); took < timeout || !strings.HasPrefix(answer, "HTTP/1.1 408 ") {
		t.Errorf("after %v: %q; want a 408 after %v", took, answer, timeout)
	}
}

// startedBy is how many goroutines a method of a connection has started.
func startedBy(method string) int {
	b := make([]byte, 8<<20)
	return bytes.Count(b[:runtime.Stack(b, true)], []byte("created by github.com/lastcall-dev/lastcall/internal/sidecar/pipe."+method+" "))
}
