package pipe

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func TestMain(m *testing.M) {
	// The tests that are parallel wait for the pipe's timers; they need no processor each.
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	// net/http's server lingers, with HTTP/2 for a second after a GOAWAY: the app's, not ours.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*http2serverConn).serve"),
		goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience is how long a test waits for what must come.
const patience = time.Minute

// tester is a test, or a run of a property.
type tester interface {
	Helper()
	Cleanup(func())
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// startPipe starts a pipe in front of app and ends it with the test.
func startPipe(t tester, app net.Addr, protocol Protocol, options ...func(*Config)) *Pipe {
	t.Helper()
	cfg := Config{Inbound: []Inbound{{Listen: "127.0.0.1:0", App: app.String(), Protocol: protocol}}}
	for _, option := range options {
		option(&cfg)
	}
	p, err := Start(cfg)
	must.Do(t, err)
	t.Cleanup(p.Kill)
	return p
}

// startApp runs an app that hands each connection to serve, and ends with the test.
func startApp(t *testing.T, serve func(net.Conn)) net.Addr {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				serve(c)
			}()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr()
}

// startServer runs an app of net/http until end is called or the test ends.
func startServer(t tester, address string, s *http.Server) (at net.Addr, end func()) {
	t.Helper()
	ln := nettest.Listen(t, address)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	end = func() { _ = s.Close(); <-done }
	t.Cleanup(end)
	return ln.Addr(), end
}

// startHTTP runs an app of HTTP/1.1 and, without TLS, HTTP/2.
func startHTTP(t tester, h http.HandlerFunc) net.Addr {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	at, _ := startServer(t, "127.0.0.1:0", &http.Server{Handler: h, Protocols: protocols})
	return at
}

// answering is an app that reads one request head and then writes the answer.
func answering(t *testing.T, answer string) net.Addr {
	return startApp(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for readHead(r) != "" {
			if _, err := io.WriteString(c, answer); err != nil || strings.Contains(answer, "close") {
				return
			}
		}
	})
}

// scripted is an app of which the test writes every byte: one connection, whose
// first request gets the head. What follows from the client is in got.
type scripted struct {
	net.Addr
	t    *testing.T
	conn chan net.Conn
	got  chan string

	resets bool // the client ends by a reset
}

func startScripted(t *testing.T, head string) *scripted {
	a := &scripted{t: t, conn: make(chan net.Conn, 1), got: make(chan string, 1)}
	a.Addr = startApp(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		readHead(r)
		_, _ = io.WriteString(c, head)
		a.conn <- c
		b, err := io.ReadAll(r)
		if err != nil && !errors.Is(err, net.ErrClosed) && !(a.resets && errors.Is(err, syscall.ECONNRESET)) {
			t.Errorf("the app's end is no end: %v", err)
		}
		a.got <- string(b)
	})
	return a
}

func (a *scripted) send(s string) {
	c := <-a.conn
	if _, err := io.WriteString(c, s); err != nil {
		a.t.Error(err)
	}
	a.conn <- c
}

func readHead(r *bufio.Reader) string {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return ""
		}
		b.WriteString(line)
		if line == "\r\n" {
			return b.String()
		}
	}
}

// client is a connection that a test speaks on.
type client struct {
	*net.TCPConn
	t tester
	r *bufio.Reader
}

// startClient starts a pipe with a client.
func startClient(t tester, app net.Addr, protocol Protocol, options ...func(*Config)) (*Pipe, *client) {
	t.Helper()
	p := startPipe(t, app, protocol, options...)
	return p, dialPipe(t, p)
}

// dialPipe connects a client, which may send something.
func dialPipe(t tester, p *Pipe, sends ...string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr(0).String())
	must.Do(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	c := &client{conn.(*net.TCPConn), t, bufio.NewReader(conn)}
	for _, s := range sends {
		c.send(s)
	}
	return c
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("send %.40q: %v", s, err)
	}
}

// response reads one response with its body.
func (c *client) response(method string) *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("read response: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("read body: %v (after %q)", err, body)
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp
}

// head reads the head of a response, or an interim response.
func (c *client) head() *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatalf("read the head of a response: %v", err)
	}
	return resp
}

// part reads a part of a response's body.
func part(t *testing.T, resp *http.Response, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(resp.Body, b); err != nil {
		t.Fatalf("read %d bytes of a body: %v", n, err)
	}
	return string(b)
}

// expect reads exactly this.
func (c *client) expect(s string) {
	c.t.Helper()
	b := make([]byte, len(s))
	if n, err := io.ReadFull(c.r, b); err != nil || string(b) != s {
		c.t.Fatalf("read %q, %v; want %q", b[:n], err, s)
	}
}

// rest reads until the end of the connection.
func (c *client) rest() string {
	c.t.Helper()
	b, err := io.ReadAll(c.r)
	if err != nil {
		c.t.Fatalf("read to the end: %v (after %q)", err, b)
	}
	return string(b)
}

// wantOK has a request answered.
func (c *client) wantOK() {
	c.t.Helper()
	c.send(get("/"))
	if status := c.response("GET").StatusCode; status != http.StatusOK {
		c.t.Fatalf("status %d", status)
	}
}

func (c *client) wantEnd() {
	c.t.Helper()
	if rest := c.rest(); rest != "" {
		c.t.Fatalf("want the end of the connection, got %q", rest)
	}
}

func bodyOf(resp *http.Response) string {
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// awaitActivity waits until the pipe's counts are these.
func awaitActivity(t *testing.T, p *Pipe, connections, busy int) {
	t.Helper()
	polltest.NoError(t, func() error {
		if a, _ := p.Activity(ctx); a.Connections != connections || a.Busy != busy {
			return fmt.Errorf("activity is %d connections, %d busy; want %d, %d", a.Connections, a.Busy, connections, busy)
		}
		return nil
	})
}

// awaitProtocol waits until the pipe has recognised the protocol of a busy connection. One is busy also while the pipe
// connects to the app and has read nothing.
func awaitProtocol(t *testing.T, p *Pipe, protocol string) {
	t.Helper()
	polltest.Eventually(t, "a busy connection speaks "+protocol, func() bool {
		return slices.ContainsFunc(p.Connections(), func(c Connection) bool {
			return c.Protocol == protocol && c.State == StateBusy
		})
	})
}

// awaitNone waits until every connection has been cleaned up, the lingering ones too.
func awaitNone(t *testing.T, p *Pipe) {
	t.Helper()
	polltest.Eventually(t, "every connection is cleaned up", func() bool { return len(p.all()) == 0 })
}

// load calls, in so many goroutines until stop is called, what each of them begins with; it ends at false.
func load(goroutines int, begin func(i int) func() bool) (stop func()) {
	var all sync.WaitGroup
	stopped := make(chan struct{})
	for i := range goroutines {
		all.Go(func() {
			for next := begin(i); next(); {
				select {
				case <-stopped:
					return
				default:
				}
			}
		})
	}
	return func() { close(stopped); all.Wait() }
}

func closePipe(t *testing.T, p *Pipe) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.Do(t, p.Close(ctx))
	select {
	case <-p.Exited():
	default:
		t.Fatal("Close returned before the pipe had ended")
	}
}

func get(path string) string { return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: app\r\n\r\n", path) }
