package pipe

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// container is an app that can be replaced on its port, as the kubelet restarts one. The kernel gives a port of :0 to the next
// listener in between.
type container struct {
	net.Addr
	kill func()
}

// startContainer runs one that answers each request with text.
func startContainer(t *testing.T, address, text string) (c container) {
	t.Helper()
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
	c.Addr, c.kill = startServer(t, address, &http.Server{Handler: answer})
	return c
}

// awaitWaiting waits until n connections are open, all of them busy: those without an app wait.
func awaitWaiting(t *testing.T, p *Pipe, n int) { t.Helper(); awaitActivity(t, p, n, n) }

// TestRestart has a container restarted while clients keep coming: those that come
// meanwhile wait, and none is refused.
func TestRestart(t *testing.T) {
	for _, protocol := range []Protocol{Auto, HTTP, TCP} {
		t.Run(protocol.String(), func(t *testing.T) {
			old := startContainer(t, nettest.FreeAddress(t, "127.0.0.1"), "old")
			p := startPipe(t, old, protocol)
			r := p.BeginRestart(nil, time.Hour)
			defer r.End()
			ask := func() *client {
				c := dialPipe(t, p, "GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n")
				return c
			}
			held := ask() // the old container still listens, and must not get it
			awaitWaiting(t, p, 1)
			old.kill()
			r.Release() // no listener: the connection still waits
			refused := ask()
			awaitWaiting(t, p, 2)
			startContainer(t, old.String(), "new")
			r.End()
			for _, c := range []*client{held, refused} {
				if got := bodyOf(c.response("GET")); got != "new" {
					t.Errorf("the answer is %q, want new", got)
				}
			}
		})
	}
}

// TestRestartFindsApp has no word of the end of the restart: the app is tried again.
func TestRestartFindsApp(t *testing.T) {
	t.Parallel()
	old := startContainer(t, nettest.FreeAddress(t, "127.0.0.1"), "old")
	p := startPipe(t, old, HTTP)
	r := p.BeginRestart(nil, time.Hour)
	defer r.End()
	old.kill()
	r.Release()
	c := dialPipe(t, p, get("/"))
	awaitWaiting(t, p, 1)
	startContainer(t, old.String(), "new")
	if got := bodyOf(c.response("GET")); got != "new" {
		t.Errorf("the answer is %q, want new", got)
	}
}

// TestAppStarts has clients that come before the app listens: each waits for it, but not for one that never will.
func TestAppStarts(t *testing.T) {
	for _, protocol := range []Protocol{Auto, HTTP, TCP} {
		for _, serves := range []bool{true, false} {
			t.Run(fmt.Sprint(protocol, serves), func(t *testing.T) {
				t.Parallel()
				at := nettest.FreeAddress(t, "127.0.0.1")
				app := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(at))
				p := startPipe(t, app, protocol, func(c *Config) { c.AppStarts = time.Hour })
				c := dialPipe(t, p, get("/"))
				awaitWaiting(t, p, 1)
				if serves {
					startContainer(t, at, "new")
				}
				p.AppServes()
				switch {
				case serves:
					if got := bodyOf(c.response("GET")); got != "new" {
						t.Errorf("the answer is %q, want new", got)
					}
				case protocol == TCP:
					if _, err := c.r.ReadByte(); err == nil {
						t.Error("a byte, want the connection's end")
					}
				default:
					if got := c.response("GET").StatusCode; got != http.StatusServiceUnavailable {
						t.Errorf("status %d, want 503", got)
					}
				}
			})
		}
	}
}

// TestRestartTakesTooLong checks that clients get a Retry-After.
func TestRestartTakesTooLong(t *testing.T) {
	old := startContainer(t, nettest.FreeAddress(t, "127.0.0.1"), "old")
	old.kill()
	p := startPipe(t, old, Auto)
	r := p.BeginRestart(nil, 10*time.Millisecond)
	defer r.End()
	c := dialPipe(t, p, get("/"))
	if resp := c.response("GET"); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%s, Retry-After %q; want 503 and 1", resp.Status, resp.Header.Get("Retry-After"))
	}
	c.wantEnd()
	resp, err := h2Client(t).Get("http://" + p.Addr(0).String())
	must.Do(t, err)
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%s %s, Retry-After %q; want 503 and 1", resp.Proto, resp.Status, resp.Header.Get("Retry-After"))
	}
}

// TestRestartOfOne leaves the other containers of the pod alone.
func TestRestartOfOne(t *testing.T) {
	other := startContainer(t, "127.0.0.1:0", "other")
	p, kept := startClient(t, other, HTTP)
	kept.send(get("/"))
	kept.response("GET")
	for _, ports := range [][]uint16{{1, 2}, {}} {
		r := p.BeginRestart(ports, time.Hour)
		fresh := dialPipe(t, p)
		for _, c := range []*client{kept, fresh} {
			c.send(get("/"))
			if resp := c.response("GET"); bodyOf(resp) != "other" || resp.Close {
				t.Errorf("restart of %v: %s, Connection: close %v", ports, resp.Status, resp.Close)
			}
		}
		r.End()
	}
}

// TestRestartInFlight counts what the container has still to answer, and ends the rest.
func TestRestartInFlight(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, HTTP)
	busy, streaming := dialPipe(t, p), dialPipe(t, p)
	dialPipe(t, p) // asks for nothing
	busy.send(get("/a"))
	<-g.requests
	streaming.send(get("/stream"))
	<-g.requests
	awaitActivity(t, p, 3, 2)
	r := p.BeginRestart(nil, time.Hour)
	defer r.End()
	late := dialPipe(t, p, get("/late"))
	awaitActivity(t, p, 4, 3)
	// The late one counts until it has seen that its app restarts.
	polltest.Eventually(t, "two in flight", func() bool { return r.InFlight() == 2 })
	g.open()
	if resp := busy.response("GET"); !resp.Close {
		t.Error("the response has no Connection: close")
	}
	streaming.response("GET")
	busy.wantEnd()
	streaming.wantEnd() // its head was too early for Connection: close
	polltest.Eventually(t, "nothing in flight after the last answer", func() bool { return r.InFlight() == 0 })
	r.Release()
	if resp := late.response("GET"); bodyOf(resp) != "done" || resp.Close {
		t.Errorf("the waiting client: %s, Connection: close %v", resp.Status, resp.Close)
	}
}

// TestRestartHTTP checks that HTTP/2 connections get a GOAWAY, and that their streams finish.
func TestRestartHTTP(t *testing.T) {
	t.Parallel()
	g := startGate(t)
	p, c := startRaw(t, g, HTTP)
	c.request(1, true, ":path", "/a")
	<-g.requests
	awaitActivity(t, p, 1, 1)
	r := p.BeginRestart(nil, time.Hour)
	defer r.End()
	g.open()
	c.wantAmong("GOAWAY 2147483647 NO_ERROR", "HEADERS 1 end=false :status=200", `DATA 1 "done"`, "GOAWAY 1 NO_ERROR")
}

// TestRestartKilled ends connections that wait for a container.
func TestRestartKilled(t *testing.T) {
	old := startContainer(t, "127.0.0.1:0", "old")
	p := startPipe(t, old, HTTP)
	r := p.BeginRestart(nil, time.Hour)
	defer r.End()
	c := dialPipe(t, p, get("/"))
	awaitWaiting(t, p, 1)
	p.Kill()
	if _, err := io.ReadAll(c.r); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}
