package pipe

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/drain/planetest"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// gate is an app whose responses wait until the test releases them.
type gate struct {
	net.Addr
	requests chan string
	free     chan struct{}
	once     sync.Once
}

func (g *gate) open() { g.once.Do(func() { close(g.free) }) }

func startGate(t *testing.T) *gate {
	g := &gate{requests: make(chan string, 100), free: make(chan struct{})}
	g.Addr = startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			fmt.Fprint(w, "begun")
			_ = http.NewResponseController(w).Flush()
		}
		g.requests <- r.URL.Path
		select {
		case <-g.free:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "done")
	})
	t.Cleanup(g.open) // the server does not cancel a handler that has not read the body
	return g
}

// startWaiting starts a pipe with a client whose first request waits at the gate.
func startWaiting(t *testing.T, requests string) (*gate, *Pipe, *client) {
	t.Helper()
	g := startGate(t)
	p, c := startClient(t, g, HTTP)
	c.send(requests)
	<-g.requests
	return g, p, c
}

var ctx = context.Background()

func TestDrainSaysGoodbye(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, HTTP)
	busy, idle := dialPipe(t, p), dialPipe(t, p)
	busy.send(get("/a"))
	<-g.requests
	awaitActivity(t, p, 2, 1)
	_ = p.Drain(ctx)
	late := dialPipe(t, p) // still accepted
	late.send(get("/late"))
	<-g.requests
	g.open()
	for _, c := range []*client{busy, late} {
		resp := c.response("GET")
		if !resp.Close || bodyOf(resp) != "done" {
			t.Fatalf("the response has no Connection: close: %v", resp.Header)
		}
		c.wantEnd()
	}
	idle.send(get("/idle")) // an idle connection still serves, once
	if resp := idle.response("GET"); !resp.Close {
		t.Fatal("no Connection: close on a connection that was idle")
	}
	idle.wantEnd()
	awaitActivity(t, p, 0, 0)
	closePipe(t, p)
}

// All pipelined requests get responses; the last response has Connection: close.
func TestDrainPipelined(t *testing.T) {
	g, p, c := startWaiting(t, get("/1")+get("/2")+get("/3"))
	_ = p.Drain(ctx)
	g.open()
	for i := range 3 {
		if resp := c.response("GET"); bodyOf(resp) != "done" || resp.Close != (i == 2) {
			t.Fatalf("response %d: Connection: close %v", i+1, resp.Close)
		}
	}
	c.wantEnd()
}

func TestDrainTellsChanges(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, HTTP)
	_ = p.Drain(ctx)
	<-p.Changes()
	dialPipe(t, p, get("/a"))
	<-g.requests
	<-p.Changes()
	a, _ := p.Activity(ctx)
	if !a.Known || a.Busy != 1 || a.Arrivals != 2 {
		t.Fatalf("activity %+v; want known, one busy, arrivals of a connection and a request", a)
	}
	g.open()
	deadline := time.After(patience)
	for a.Busy != 0 {
		select {
		case <-p.Changes():
			a, _ = p.Activity(ctx)
		case <-deadline:
			t.Fatal("the end of the last request was not reported")
		}
	}
}

func TestCloseIdle(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, HTTP)
	idle, busy := dialPipe(t, p), dialPipe(t, p)
	busy.send(get("/a"))
	<-g.requests
	awaitActivity(t, p, 2, 1)
	_ = p.CloseIdle(ctx, 0)
	idle.wantEnd()
	awaitActivity(t, p, 1, 1)
	g.open() // no Drain: the response has no Connection: close, yet the connection ends
	busy.response("GET")
	busy.wantEnd()
	awaitActivity(t, p, 0, 0)
}

func TestCloseIdleLater(t *testing.T) {
	p, c := startClient(t, startGate(t), HTTP)
	awaitActivity(t, p, 1, 0)
	_ = p.CloseIdle(ctx, 20*time.Millisecond)
	c.wantEnd()
	awaitActivity(t, p, 0, 0)
}

// What a client has sent when idle connections are closed need be no request: its connection is
// ended once that has been read.
func TestCloseIdleUnread(t *testing.T) {
	p := startPipe(t, startGate(t), HTTP)
	ln := nettest.Listen(t, "127.0.0.1:0")
	listener, err := tcp.Accepting(ln.(*net.TCPListener), time.Second)
	must.Do(t, err)
	defer listener.Close()
	theirs, err := net.Dial("tcp", ln.Addr().String())
	must.Do(t, err)
	defer theirs.Close()
	ours, err := listener.Accept()
	must.Do(t, err)
	s := ours.(*tcp.Socket)
	c := &conn{p: p, in: p.listeners[0], client: s, began: time.Now(), idleSince: time.Now()} // without a reader
	c.up.c, c.down.c = c, c
	p.add(c)
	defer c.cleanUp()
	_, _ = theirs.Write([]byte("\r\n"))
	polltest.Eventually(t, "the client's bytes have arrived", func() bool { return s.Unread() > 0 })
	_ = p.CloseIdle(ctx, 0)
	if c.hasEnded() {
		t.Fatal("it was ended with something unread")
	}
	_, _ = ours.Read(make([]byte, 2))
	_ = theirs.SetReadDeadline(time.Now().Add(patience))
	if n, err := theirs.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d %v, want the end", n, err)
	}
}

// A request of which only a part of the head arrives, before or after idle connections are closed, ends as one that
// meets the end of its idle connection.
func TestHalfHead(t *testing.T) {
	p := startPipe(t, startGate(t), HTTP)
	before := dialPipe(t, p)
	before.send("GET / HTTP/1.1\r\nHo")
	awaitActivity(t, p, 1, 1)
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	after := dialPipe(t, p)
	after.send("GET / HTTP/1.1\r\nHo")
	before.wantEnd()
	after.wantEnd()
	awaitActivity(t, p, 0, 0)
	if a, _ := p.Activity(ctx); a.Raced != 2 {
		t.Errorf("%+v", a)
	}
}

// A request that races with the end of its idle connection is counted once and reported.
func TestRace(t *testing.T) {
	p, c := startClient(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), HTTP)
	c.wantOK()
	awaitActivity(t, p, 1, 0)
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	c.wantEnd()
	if a, _ := p.Activity(ctx); a.Raced != 0 {
		t.Errorf("%+v before there is a race", a)
	}
	c.send(get("/") + get("/"))
	for deadline := time.After(patience); ; {
		if a, _ := p.Activity(ctx); a.Raced > 0 {
			break
		}
		select {
		case <-p.Changes():
		case <-deadline:
			t.Fatal("the race is not reported")
		}
	}
	c.send(get("/"))
	_ = c.Close()
	awaitNone(t, p)
	if s := p.Stats(); s.Raced != 1 || s.Requests != 1 {
		t.Errorf("%+v, want one race and one request", s)
	}
}

// A request after a response with Connection: close is not a race: the client knew of the end.
func TestNoRace(t *testing.T) {
	p := startPipe(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), HTTP)
	_ = p.Drain(ctx)
	c := dialPipe(t, p)
	c.wantOK()
	c.wantEnd()
	c.send(get("/"))
	_ = c.Close()
	awaitNone(t, p)
	if s := p.Stats(); s.Raced != 0 {
		t.Errorf("%+v", s)
	}
}

// A client that connects while idle connections are being closed has a moment to send its request.
func TestLateConnection(t *testing.T) {
	t.Parallel()
	g := startGate(t)
	g.open()
	p := startPipe(t, g, HTTP)
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	c := dialPipe(t, p)
	awaitActivity(t, p, 1, 1)
	c.send(get("/"))
	if resp := c.response("GET"); resp.StatusCode != 200 || !resp.Close {
		t.Fatal(resp)
	}
	c.wantEnd()
	silent := dialPipe(t, p)
	silent.wantEnd()
	awaitActivity(t, p, 0, 0)
}

// What has connected before StopAccepting is served, also when it was still in
// the listener's queue; later connections are refused. After Resume all is as before the drain.
func TestStopAccepting(t *testing.T) {
	p := startPipe(t, startHTTP(t, echo), HTTP)
	var clients []*client
	for range 50 {
		clients = append(clients, dialPipe(t, p))
	}
	_ = p.StopAccepting(ctx)
	for _, c := range clients {
		c.wantOK()
	}
	if c, err := net.Dial("tcp", p.Addr(0).String()); err == nil {
		_ = c.Close()
		t.Fatal("a connection was accepted after StopAccepting")
	}
	awaitActivity(t, p, len(clients), 0)
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	must.Do(t, p.Resume(ctx))
	c := dialPipe(t, p)
	for range 3 {
		c.send(get("/"))
		if resp := c.response("GET"); resp.StatusCode != http.StatusOK || resp.Close {
			t.Fatalf("after Resume: %s, Connection: close %v", resp.Status, resp.Close)
		}
	}
	awaitActivity(t, p, 1, 0)
}

func TestLastCall(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, Auto)
	waiting, begun, upload, tunnel, idle := dialPipe(t, p), dialPipe(t, p), dialPipe(t, p), dialPipe(t, p),
		dialPipe(t, p)
	waiting.send(get("/wait?x=1"))
	<-g.requests
	begun.send(get("/stream"))
	<-g.requests
	if b, err := begun.r.ReadString('n'); err != nil {
		t.Fatal(b, err)
	}
	upload.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
	<-g.requests
	tunnel.send("\x00\x01")
	awaitActivity(t, p, 5, 4)
	awaitProtocol(t, p, "tcp")
	_ = p.Drain(ctx)

	open, err := p.Open(ctx, 3)
	if err != nil || len(open) != 3 {
		t.Fatalf("Open: %v, %v; want 3 of 4", open, err)
	}
	left, err := p.LastCall(ctx, 40*time.Millisecond)
	must.Do(t, err)
	got := map[string]string{}
	for _, c := range left {
		got[c.Request] = c.Ending
		if c.Peer == "" || c.Protocol == "" || c.Age <= 0 {
			t.Errorf("not described: %+v", c)
		}
	}
	want := map[string]string{"GET /wait?x=1": "503", "GET /stream": "truncated", "POST /upload": "503", "": "fin"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("ended %v; want %v", got, want)
	}
	for _, c := range []*client{waiting, upload} {
		resp := c.response("GET")
		if resp.StatusCode != 503 || !resp.Close || !strings.Contains(bodyOf(resp), "shutting down") {
			t.Errorf("at the last call: %v", resp)
		}
		c.wantEnd()
	}
	if rest := begun.rest(); strings.HasSuffix(rest, "0\r\n\r\n") {
		t.Error("a truncated answer looks like a whole one")
	}
	tunnel.wantEnd()
	idle.wantEnd()
	closePipe(t, p)
}

// The app of a connection whose server spoke first sees a FIN at the last call, not a reset; so does the client.
func TestLastCallServerFirst(t *testing.T) {
	ended := make(chan error, 1)
	app := startApp(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "220 mail\r\n")
		_, err := io.Copy(c, c)
		ended <- err
	})
	p, c := startClient(t, app, Auto)
	c.expect("220 mail\r\n")
	c.send("EHLO a\r\n")
	c.expect("EHLO a\r\n")
	_ = p.Drain(ctx)
	wantEndings(t, lastCall(t, p, 0)(), "fin")
	c.wantEnd()
	if err := <-ended; err != nil {
		t.Errorf("the app sees %v, want a FIN", err)
	}
}

// The end waits for a client that reads slowly.
func TestCloseDeliversTheLastByte(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	sent := make(chan struct{})
	app := startHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), size))
		close(sent)
	})
	p, c := startClient(t, app, HTTP)
	c.send(get("/"))
	_, _ = c.r.Peek(1)
	_ = p.Drain(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Close(ctx) }()
	if resp := c.response("GET"); len(bodyOf(resp)) != size {
		t.Fatal("cut")
	}
	must.Do(t, <-done)
}

func TestCloseGivesUp(t *testing.T) {
	_, p, c := startWaiting(t, get("/"))
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := p.Close(short); err == nil {
		t.Fatal("Close returned while a request was open")
	}
	p.Kill()
	c.wantEnd()
	<-p.Exited()
}

func TestReportReads(t *testing.T) {
	_, p, c := startWaiting(t, get("/"+strings.Repeat("long", 1000)))
	open, _ := p.Open(ctx, 1)
	b, err := json.Marshal(open)
	if err != nil || len(b) > 600 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	_ = c.Close()
	awaitActivity(t, p, 0, 0)
}

// Probes and scrapes are served and hold nothing up.
func TestQuietClients(t *testing.T) {
	g := startGate(t)
	p := startPipe(t, g, HTTP)
	probe, user := dialPipe(t, p), dialPipe(t, p)
	probe.send("GET /probe HTTP/1.1\r\nHost: a\r\nUser-Agent: kube-probe/1.34\r\n\r\n")
	<-g.requests
	awaitActivity(t, p, 2, 0)
	before, _ := p.Activity(ctx)
	user.send("GET /user HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8\r\n\r\n")
	<-g.requests
	awaitActivity(t, p, 2, 1)
	if after, _ := p.Activity(ctx); after.Arrivals != before.Arrivals+1 {
		t.Errorf("arrivals went from %d to %d: the probe counts", before.Arrivals, after.Arrivals)
	}
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	g.open()
	for _, c := range []*client{probe, user} {
		if resp := c.response("GET"); bodyOf(resp) != "done" || !resp.Close {
			t.Errorf("%v", resp)
		}
	}
	closePipe(t, p)
}

// A connection to the capture port itself is closed: forwarding it would loop.
func TestNotCaptured(t *testing.T) {
	p, err := Start(Config{Inbound: []Inbound{{Listen: "127.0.0.1:0"}}})
	must.Do(t, err)
	t.Cleanup(p.Kill)
	dialPipe(t, p).wantEnd()
	awaitActivity(t, p, 0, 0)
}

// Close does not wait for clients that keep their end open, and what waits for
// them ends by itself.
func TestCloseLeavesLingering(t *testing.T) {
	t.Parallel()
	p, c := startClient(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), HTTP)
	c.wantOK()
	closePipe(t, p)
	c.wantEnd()
	if len(p.all()) == 0 {
		t.Error("Close has waited for a client that keeps its end open")
	}
	awaitNone(t, p)
}

// No client, whenever it connects, delays the end to the last call.
func TestClients(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(rand.N(20 * time.Millisecond))
		_, _ = io.WriteString(w, "done")
	})
	authority := certificatetest.New(t)
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%v", secure), func(t *testing.T) {
			t.Parallel()
			planetest.Clients(t, func(t *testing.T, round int) (drain.DataPlane, func() (net.Conn, error)) {
				cfg := Config{
					Inbound: []Inbound{{Listen: "127.0.0.1:0", App: app.String(),
						Protocol: []Protocol{HTTP, Auto}[round%2]}},
					Limits: Limits{HeadTimeout: 300 * time.Millisecond},
				}
				if secure {
					secured(t, authority)(&cfg)
				}
				p, err := Start(cfg)
				must.Do(t, err)
				p.listeners[0].http.add(0) // else a part of a first line is no HTTP
				return p, func() (net.Conn, error) {
					c, err := net.Dial("tcp", p.Addr(0).String())
					if err == nil && secure {
						return tls.Client(c, &tls.Config{InsecureSkipVerify: true}), nil
					}
					return c, err
				}
			})
		})
	}
}
