package pipe

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// slowApp reads all requests and answers when the test releases it.
type slowApp struct {
	net.Addr
	got    chan string // request lines as they come
	answer chan int    // how many of the oldest requests to answer
	ended  chan struct{}
	conn   chan net.Conn
}

func startSlowApp(t *testing.T) *slowApp {
	a := &slowApp{got: make(chan string, 1<<17), answer: make(chan int, 1<<10), ended: make(chan struct{}), conn: make(chan net.Conn, 1)}
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	a.Addr = startApp(t, func(c net.Conn) {
		a.conn <- c
		lines := make(chan string, 1<<17)
		go func() {
			for {
				select {
				case n := <-a.answer:
					for range n {
						_, path, _ := strings.Cut(<-lines, " ")
						path, _, _ = strings.Cut(path, " ")
						if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path); err != nil {
							return
						}
					}
				case <-over:
					return
				}
			}
		}()
		r := bufio.NewReader(c)
		for {
			head := readHead(r)
			if head == "" {
				close(a.ended)
				<-over // there are answers to come
				return
			}
			line, _, _ := strings.Cut(head, "\r\n")
			lines <- line
			a.got <- line
		}
	})
	return a
}

// awaitRequests waits until the app has got n more requests.
func (a *slowApp) awaitRequests(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		select {
		case <-a.got:
		case <-time.After(patience):
			t.Fatalf("the app got %d requests, want %d", i, n)
		}
	}
}

// fillQueue has a client send n more requests than are forwarded ahead of their
// answers, and waits until the pipe reads no more.
func fillQueue(t *testing.T, p *Pipe, app *slowApp, n int) *client {
	t.Helper()
	c := dialPipe(t, p)
	var all strings.Builder
	for i := range maxQueued + n {
		all.WriteString(get(fmt.Sprintf("/%d", i)))
	}
	c.send(all.String())
	app.awaitRequests(t, maxQueued)
	polltest.Eventually(t, "the pipe does not read on while the queue is full", func() bool { return p.all()[0].up.awaitsRoom() })
	return c
}

func (c *client) wantAnswers(from, to int) {
	c.t.Helper()
	for i := from; i < to; i++ {
		if body := bodyOf(c.response("GET")); body != fmt.Sprintf("/%d", i) {
			c.t.Fatalf("answer %d is %q", i, body)
		}
	}
}

// TestPipeliningIsBounded sends far more requests at once than the app answers: no
// more than maxQueued are forwarded ahead of their answers, and each has its answer.
func TestPipeliningIsBounded(t *testing.T) {
	for _, protocol := range []Protocol{Auto, HTTP} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			app := startSlowApp(t)
			p := startPipe(t, app, protocol)
			const more = 5000
			c := fillQueue(t, p, app, more)
			select {
			case line := <-app.got:
				t.Fatalf("%q was forwarded although %d requests before it are unanswered", line, maxQueued)
			default:
			}
			for sent := 0; sent < maxQueued+more; sent++ {
				app.answer <- 1
				c.wantAnswers(sent, sent+1)
				if n := p.all()[0].queued(); n > maxQueued {
					t.Fatalf("%d requests are queued", n)
				}
			}
			awaitActivity(t, p, 1, 0)
		})
	}
}

func (c *conn) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.len()
}

// TestHeadsInTheAccessLogAreBounded sends large heads, which the access log keeps
// parts of until they are answered.
func TestHeadsInTheAccessLogAreBounded(t *testing.T) {
	app := startSlowApp(t)
	p := startPipe(t, app, HTTP, func(cfg *Config) { cfg.AccessLog = accesslog.New(io.Discard, accesslog.Text) })
	c := dialPipe(t, p)
	const size, n = 20 << 10, 20
	go func() {
		for i := range n {
			_, _ = fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: app\r\nX-Large: %s\r\n\r\n", i, strings.Repeat("x", size))
		}
	}()
	app.awaitRequests(t, maxQueuedBytes/(size+1<<10))
	polltest.Eventually(t, "the pipe does not read on while the queue is full", func() bool { return p.all()[0].up.awaitsRoom() })
	app.answer <- n
	c.wantAnswers(0, n)
}

// TestEndsWithAFullQueue ends a connection in each way while the pipe does not read
// from its client.
func TestEndsWithAFullQueue(t *testing.T) {
	const more = 10
	ends := func(how string, end func(*testing.T, *slowApp, *Pipe, *client)) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			app := startSlowApp(t)
			p := startPipe(t, app, Auto, func(cfg *Config) {
				if how == "response timeout" {
					cfg.ResponseTimeout = 200 * time.Millisecond
				}
			})
			end(t, app, p, fillQueue(t, p, app, more))
		})
	}
	ends("drain", func(t *testing.T, app *slowApp, p *Pipe, c *client) {
		if err := p.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		app.answer <- maxQueued
		c.wantAnswers(0, maxQueued-1)
		if last := c.response("GET"); last.Header.Get("Connection") != "close" && !last.Close {
			t.Fatalf("the last response has no Connection: close: %v", last.Header)
		}
		c.wantEnd()
		awaitActivity(t, p, 0, 0)
		if n := len(app.got); n != 0 {
			t.Fatalf("%d requests were forwarded after the Connection: close", n)
		}
	})
	ends("half-close", func(t *testing.T, app *slowApp, p *Pipe, c *client) {
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		app.answer <- maxQueued + more
		c.wantAnswers(0, maxQueued+more)
		c.wantEnd()
		awaitNone(t, p)
	})
	ends("half-close in a drain", func(t *testing.T, app *slowApp, p *Pipe, c *client) {
		_ = c.CloseWrite()
		_ = p.Drain(ctx)
		_ = p.CloseIdle(ctx, 0)
		app.answer <- maxQueued
		c.wantAnswers(0, maxQueued)
		c.wantEnd()
		awaitNone(t, p)
	})
	ends("the app closes", func(t *testing.T, app *slowApp, p *Pipe, c *client) {
		app.answer <- 1
		c.wantAnswers(0, 1)
		_ = (<-app.conn).Close()
		if resp := c.response("GET"); resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("status %d", resp.StatusCode)
		}
		c.wantEnd()
		awaitActivity(t, p, 0, 0)
	})
	ends("last call", func(t *testing.T, app *slowApp, p *Pipe, c *client) {
		_ = p.Drain(ctx)
		cut, err := p.LastCall(ctx, 100*time.Millisecond)
		if err != nil || len(cut) != 1 || cut[0].Ending != "503" || cut[0].Request != "GET /0" {
			t.Fatalf("%+v, %v", cut, err)
		}
		if resp := c.response("GET"); resp.StatusCode != http.StatusServiceUnavailable || bodyOf(resp) != replyLastCall.Body {
			t.Fatalf("status %d", resp.StatusCode)
		}
		c.wantEnd()
		_ = c.Close()
		closePipe(t, p)
	})
	ends("close", func(t *testing.T, app *slowApp, p *Pipe, c *client) {
		_ = p.Drain(ctx)
		app.answer <- maxQueued
		closed := make(chan struct{})
		go func() { defer close(closed); closePipe(t, p) }()
		c.wantAnswers(0, maxQueued)
		c.wantEnd()
		<-closed
	})
	ends("the client resets", func(t *testing.T, app *slowApp, p *Pipe, c *client) {
		_ = c.SetLinger(0)
		_ = c.Close()
		select {
		case <-app.ended: // as when the queue is not full
		case <-time.After(patience):
			t.Fatal("the app did not see that its client has gone")
		}
		awaitNone(t, p)
	})
	ends("killed", func(t *testing.T, app *slowApp, p *Pipe, _ *client) {
		p.Kill()
		awaitNone(t, p)
	})
	ends("response timeout", func(t *testing.T, app *slowApp, p *Pipe, c *client) {
		if resp := c.response("GET"); resp.StatusCode != http.StatusGatewayTimeout {
			t.Fatalf("status %d", resp.StatusCode)
		}
		c.wantEnd()
		awaitActivity(t, p, 0, 0)
	})
}
