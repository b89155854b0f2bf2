package pipe

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
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

// wantAnswers reads so many and returns the last one.
func (c *client) wantAnswers(from, to int) (last *http.Response) {
	c.t.Helper()
	for i := from; i < to; i++ {
		last = c.response("GET")
		if body := bodyOf(last); body != fmt.Sprintf("/%d", i) {
			c.t.Fatalf("answer %d is %q", i, body)
		}
	}
	return last
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
	p, c := startClient(t, app, HTTP, func(cfg *Config) { cfg.AccessLog = accesslog.New(io.Discard, accesslog.Text) })
	const size, n = 20 << 10, 20
	go func() {
		for i := range n {
			_, _ = fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: app\r\nUser-Agent: %s\r\n\r\n", i, strings.Repeat("x", size))
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
	for how, tt := range map[string]struct {
		end     func(t *testing.T, app *slowApp, p *Pipe, c *client)
		answers int  // of the app, which the client gets then
		closes  bool // the last one announces the close
		status  int  // of the pipe's response after them; 0: none
	}{
		"drain": {func(_ *testing.T, app *slowApp, p *Pipe, _ *client) {
			_ = p.Drain(ctx)
			app.answer <- maxQueued
		}, maxQueued, true, 0},
		"half-close": {func(_ *testing.T, app *slowApp, _ *Pipe, c *client) {
			_ = c.CloseWrite()
			app.answer <- maxQueued + more
		}, maxQueued + more, false, 0},
		"half-close in a drain": {func(_ *testing.T, app *slowApp, p *Pipe, c *client) {
			_ = c.CloseWrite()
			_ = p.Drain(ctx)
			_ = p.CloseIdle(ctx, 0)
			app.answer <- maxQueued
		}, maxQueued, true, 0},
		"close": {func(t *testing.T, app *slowApp, p *Pipe, _ *client) {
			_ = p.Drain(ctx)
			app.answer <- maxQueued
			closed := make(chan struct{})
			go func() { defer close(closed); closePipe(t, p) }()
			t.Cleanup(func() { <-closed })
		}, maxQueued, true, 0},
		"the app closes": {func(_ *testing.T, app *slowApp, _ *Pipe, c *client) {
			app.answer <- 1
			c.wantAnswers(0, 1)
			_ = (<-app.conn).Close()
		}, 0, false, 0},
		"last call": {func(t *testing.T, _ *slowApp, p *Pipe, _ *client) {
			_ = p.Drain(ctx)
			cut, err := p.LastCall(ctx, 100*time.Millisecond)
			if err != nil || len(cut) != 1 || cut[0].Ending != "503" || cut[0].Request != "GET /0" {
				t.Errorf("%+v, %v", cut, err)
			}
		}, 0, false, 503},
		"response timeout": {func(*testing.T, *slowApp, *Pipe, *client) {}, 0, false, 504},
		"the client resets": {func(t *testing.T, app *slowApp, _ *Pipe, c *client) {
			_ = c.SetLinger(0)
			_ = c.Close()
			select {
			case <-app.ended: // as when the queue is not full
			case <-time.After(patience):
				t.Error("the app did not see that its client has gone")
			}
		}, -1, false, 0},
		"killed": {func(_ *testing.T, _ *slowApp, p *Pipe, _ *client) { p.Kill() }, -1, false, 0},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			app := startSlowApp(t)
			p := startPipe(t, app, Auto, func(cfg *Config) {
				if how == "response timeout" {
					cfg.ResponseTimeout = time.Second // enough to fill the queue
				}
			})
			c := fillQueue(t, p, app, more)
			if tt.end(t, app, p, c); tt.answers < 0 {
				awaitNone(t, p)
				return
			}
			if last := c.wantAnswers(0, tt.answers); last != nil && last.Close != tt.closes {
				t.Errorf("the last response announces the close: %v", last.Close)
			}
			if n := len(app.got); tt.closes && n != 0 {
				t.Errorf("%d requests were forwarded after the last response", n)
			}
			if tt.status != 0 {
				if resp := c.response("GET"); resp.StatusCode != tt.status || how == "last call" && bodyOf(resp) != replyLastCall.Body {
					t.Errorf("status %d", resp.StatusCode)
				}
			}
			c.wantEnd()
			_ = c.Close()
			awaitNone(t, p)
		})
	}
}

// A request that is refused takes the answer of none before it.
func TestRefusedBehindOthers(t *testing.T) {
	for _, bad := range []string{
		"nonsense\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: y\r\n", 4000),
		"GET / HTTP/1.1\r\nX", // not in time
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nslow",
	} {
		g := startGate(t)
		p := startPipe(t, g, HTTP, func(c *Config) { c.HeadTimeout, c.RequestTimeout = 50*time.Millisecond, 50*time.Millisecond })
		c := dialPipe(t, p, "POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"+bad)
		<-g.requests
		awaitRefusal(t, p)
		g.open()
		if resp := c.response("POST"); resp.StatusCode != 200 || bodyOf(resp) != "done" {
			t.Errorf("%.50q: the first request got %v", bad, resp)
		}
		if resp := c.response("GET"); resp.StatusCode/100 != 4 || !resp.Close {
			t.Errorf("%.50q got %v", bad, resp)
		}
		c.wantEnd()
	}
}

// awaitRefusal waits until a client's connection knows that it will be refused.
func awaitRefusal(t *testing.T, p *Pipe) {
	t.Helper()
	polltest.Eventually(t, "a request is refused", func() bool {
		return slices.ContainsFunc(p.all(), func(c *conn) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.end.refusal != nil
		})
	})
}

// What an app sends beyond its responses does not reach the client, which would take it for the response to its next
// request: neither in the same segment as a response nor later, neither a part of a head nor all of it.
func TestSurplusResponse(t *testing.T) {
	const response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, surplus := range map[string]string{
		"a response":       "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
		"a part of a head": "HTTP/1.1 200 OK\r\nX-For",
		"an interim one":   "HTTP/1.1 100 Continue\r\n\r\n",
		"a byte":           "x",
	} {
		for _, requests := range []int{1, 2} { // the second is pipelined
			for _, isLater := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					seen := make(chan struct{})
					app := startApp(t, func(c net.Conn) {
						r := bufio.NewReader(c)
						for range requests {
							readHead(r)
						}
						answer := strings.Repeat(response, requests)
						if !isLater {
							_, _ = io.WriteString(c, answer+surplus)
						} else {
							_, _ = io.WriteString(c, answer)
							<-seen
							_, _ = io.WriteString(c, surplus)
						}
						_, _ = io.Copy(io.Discard, r) // the end is the pipe's
					})
					_, c := startClient(t, app, HTTP)
					c.send(strings.Repeat(get("/"), requests))
					for range requests {
						if resp := c.response("GET"); resp.StatusCode != 200 || bodyOf(resp) != "ok" {
							t.Fatal(resp.Status)
						}
					}
					close(seen)
					c.wantEnd()
				})
			}
		}
	}
}
