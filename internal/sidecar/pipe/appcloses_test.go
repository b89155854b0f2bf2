package pipe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

const okBody = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// closingApp answers each request but the last of a connection, which it reads and then ends the connection, by a reset
// if resets is set. answers has the number of answers of each connection, the last entry of all later ones.
type closingApp struct {
	net.Addr
	connections, requests atomic.Int32
}

func startClosingApp(t *testing.T, resets bool, answers ...int) *closingApp {
	a := &closingApp{}
	a.Addr = startApp(t, func(c net.Conn) {
		i := min(int(a.connections.Add(1)), len(answers)) - 1
		r := bufio.NewReader(c)
		for range answers[i] {
			if readHead(r) == "" {
				return
			}
			a.requests.Add(1)
			_, _ = io.WriteString(c, okBody)
		}
		if readHead(r) != "" {
			a.requests.Add(1)
		}
		if resets {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	})
	return a
}

// What the end of the app's connection means to a client without a sidecar it means behind one: the client may repeat a
// request that got no byte of a response, which a response of ours would forbid.
func TestAppEndsBeforeResponse(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 4\r\n\r\nbody"
	long := "GET / HTTP/1.1\r\nHost: app\r\nCookie: " + strings.Repeat("x", maxRepeated) + "\r\n\r\n"
	for name, tt := range map[string]struct {
		answers  []int // see closingApp
		sends    []string
		answered int // of them
		requests int // that the app has received
	}{
		"the first request":                     {[]int{0}, []string{get("/")}, 0, 1},
		"a later one is sent again":             {[]int{1, 1}, []string{get("/1"), get("/2")}, 2, 3},
		"it is sent again once":                 {[]int{1, 0}, []string{get("/1"), get("/2")}, 1, 3},
		"after each response":                   {[]int{1}, []string{get("/1"), get("/2"), get("/3"), get("/4")}, 4, 7},
		"a POST is not":                         {[]int{1, 1}, []string{get("/1"), post}, 1, 2},
		"a long head is not":                    {[]int{1, 1}, []string{get("/1"), long}, 1, 2},
		"requests sent ahead are not":           {[]int{1, 1}, []string{get("/1"), get("/2") + get("/3")}, 1, 2},
		"DELETE is":                             {[]int{1, 1}, []string{get("/1"), "DELETE / HTTP/1.1\r\nHost: app\r\n\r\n"}, 2, 3},
		"one with Connection: close is not":     {[]int{1, 1}, []string{get("/1"), "GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n"}, 1, 2},
		"one that announces close at the start": {[]int{0}, []string{"GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n"}, 0, 1},
	} {
		for how, resets := range map[string]bool{"FIN": false, "RST": true} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				app := startClosingApp(t, resets, tt.answers...)
				p, c := startClient(t, app, HTTP)
				got := 0
				for _, s := range tt.sends {
					c.send(s)
					resp, err := http.ReadResponse(c.r, nil)
					if err == nil {
						if body := bodyOf(resp); resp.StatusCode != 200 || body != "ok" {
							t.Fatal(resp, body)
						}
						got++
						continue
					}
					if isRST := errors.Is(err, syscall.ECONNRESET); isRST != resets {
						t.Errorf("the client's connection ends with %v", err)
					}
					break
				}
				if n := int(app.requests.Load()); got != tt.answered || n != tt.requests {
					t.Errorf("%d responses, the app received %d requests; want %d and %d", got, n, tt.answered, tt.requests)
				}
				_ = c.Close()
				awaitNone(t, p)
			})
		}
	}
}

// A request that comes while the response before it is being passed on is sent again as well: to the pipe, a client that
// is fast looks like one that sends ahead.
func TestAppEndsBehindResponse(t *testing.T) {
	for how, resets := range map[string]bool{"FIN": false, "RST": true} {
		t.Run(how, func(t *testing.T) {
			var connections atomic.Int32
			received := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				r := bufio.NewReader(c)
				if connections.Add(1) > 1 {
					for readHead(r) != "" {
						_, _ = io.WriteString(c, okBody)
					}
					return
				}
				readHead(r)
				_, _ = io.WriteString(c, okBody[:len(okBody)-1])
				readHead(r)
				_, _ = io.WriteString(c, "k")
				if resets {
					<-received // a reset discards what has not been read
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			})
			_, c := startClient(t, app, HTTP)
			c.send(get("/1"))
			first, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.send(get("/2"))
			body := bodyOf(first)
			close(received)
			if second := c.response("GET"); body != "ok" || second.StatusCode != 200 {
				t.Error(body, second)
			}
			c.wantOK()
		})
	}
}

// An app that ends each connection after its response, without announcing it: net/http's client sees no error.
func TestAppEndsEachConnection(t *testing.T) {
	app := startClosingApp(t, false, 1)
	unannounced := startApp(t, func(c net.Conn) {
		if readHead(bufio.NewReader(c)) != "" {
			_, _ = io.WriteString(c, okBody)
		}
	})
	for name, at := range map[string]net.Addr{"before the next request": unannounced, "at the next request": app} {
		t.Run(name, func(t *testing.T) {
			p := startPipe(t, at, HTTP)
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			failed := map[string]int{}
			for range 500 {
				resp, err := client.Get("http://" + p.Addr(0).String())
				switch {
				case err != nil:
					failed[err.Error()]++
				case bodyOf(resp) != "ok":
					failed[resp.Status]++
				}
			}
			if len(failed) > 0 {
				t.Errorf("of 500 requests failed: %v", failed)
			}
		})
	}
}

// The app's keep-alive time-out passes while the client's next head arrives in parts.
func TestAppEndsWithinHead(t *testing.T) {
	closes := make(chan struct{})
	var connections atomic.Int32
	app := startApp(t, func(c net.Conn) {
		r, isFirst := bufio.NewReader(c), connections.Add(1) == 1
		for readHead(r) != "" {
			if _, _ = io.WriteString(c, okBody); isFirst {
				<-closes
				return
			}
		}
	})
	p, c := startClient(t, app, HTTP)
	c.wantOK()
	awaitActivity(t, p, 1, 0)
	c.send("POST / HTTP/1.1\r\nHost: app\r\n")
	awaitActivity(t, p, 1, 1)
	close(closes)
	polltest.Eventually(t, "the pipe has seen the end", func() bool {
		for _, c := range p.all() {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.rejoins
		}
		return false
	})
	c.send("Content-Length: 0\r\n\r\n")
	if resp := c.response("POST"); resp.StatusCode != 200 {
		t.Error(resp)
	}
	c.wantOK()
}

// A client that has a part of a response head does not repeat its request, which the app may have executed.
func TestAppEndsWithinResponseHead(t *testing.T) {
	const part = "HTTP/1.1 200 OK\r\nContent-"
	for how, resets := range map[string]bool{"FIN": false, "RST": true} {
		t.Run(how, func(t *testing.T) {
			arrived := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				readHead(bufio.NewReader(c))
				_, _ = io.WriteString(c, part)
				<-arrived // a reset discards what has not been read
				if resets {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			})
			p, c := startClient(t, app, HTTP)
			c.send(get("/"))
			awaitActivity(t, p, 1, 1)
			polltest.Eventually(t, "the pipe has the part", func() bool {
				c := p.all()[0]
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.app == nil {
					return false
				}
				received, _ := c.app.Transferred()
				return received >= uint64(len(part)) && c.app.Unread() == 0
			})
			close(arrived)
			got, err := io.ReadAll(c.r)
			if string(got) != part || errors.Is(err, syscall.ECONNRESET) != resets {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// The end of the app's connection while nothing is due is the client's at once.
func TestAppEndsIdleConnection(t *testing.T) {
	for how, resets := range map[string]bool{"FIN": false, "RST": true} {
		t.Run(how, func(t *testing.T) {
			answered := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				readHead(bufio.NewReader(c))
				_, _ = io.WriteString(c, okBody)
				if resets {
					<-answered // a reset discards what has not been read
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			})
			_, c := startClient(t, app, HTTP)
			c.wantOK()
			close(answered)
			if _, err := c.r.ReadByte(); errors.Is(err, io.EOF) == resets || errors.Is(err, syscall.ECONNRESET) != resets {
				t.Error(err)
			}
		})
	}
}

// A client that half-closes within its body gets the app's own answer.
func TestHalfCloseWithinBody(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		readHead(r)
		b, err := io.ReadAll(r)
		fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 8\r\n\r\n%4d %v", len(b), err == nil)
	})
	for _, protocol := range []Protocol{HTTP, Auto} {
		_, c := startClient(t, app, protocol)
		c.send("POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 10\r\n\r\nhalf")
		_ = c.CloseWrite()
		if resp := c.response("POST"); resp.StatusCode != 400 || bodyOf(resp) != "   4 tru" {
			t.Error(resp, bodyOf(resp))
		}
		c.wantEnd()
	}
}

// TestAppEndsMeanwhile has an app end its connection after each response, at any moment of the next requests: one at a
// time or two in one write. No request waits for an answer that cannot come, and none gets another's.
func TestAppEndsMeanwhile(t *testing.T) {
	for _, protocol := range []Protocol{HTTP, Auto} {
		for _, resets := range []bool{false, true} {
			for _, sends := range []int{1, 2} {
				t.Run(fmt.Sprint(protocol, resets, sends), func(t *testing.T) {
					t.Parallel()
					p := startPipe(t, startEcho(t, resets), protocol)
					var clients sync.WaitGroup
					for i := range 8 {
						clients.Go(func() { askUntilEnd(t, p, i, sends, 150) })
					}
					clients.Wait()
				})
			}
		}
	}
}

// startEcho answers two requests of each connection with their path, and ends it.
func startEcho(t *testing.T, resets bool) net.Addr {
	return startApp(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for range 2 {
			head := readHead(r)
			if head == "" {
				return
			}
			path := strings.Fields(head)[1]
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
		}
		for begin, pause := time.Now(), rand.N(200*time.Microsecond); time.Since(begin) < pause; { // shorter than a timer's
			runtime.Gosched()
		}
		if resets {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	})
}

// askUntilEnd sends requests, so many in one write, and connects again when the connection ends.
func askUntilEnd(t *testing.T, p *Pipe, client, each, rounds int) {
	var c net.Conn
	var r *bufio.Reader
	for round := range rounds {
		if c == nil {
			var err error
			if c, err = net.Dial("tcp", p.Addr(0).String()); err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience / 2))
			r = bufio.NewReader(c)
		}
		path := func(i int) string { return fmt.Sprintf("/%d/%d/%d", client, round, i) }
		all := ""
		for i := range each {
			all += get(path(i))
		}
		_, _ = io.WriteString(c, all)
		for i := range each {
			resp, err := http.ReadResponse(r, nil)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("request %s waits forever", path(i))
				return
			} else if err != nil {
				c = nil
				break
			}
			if got := bodyOf(resp); got != path(i) {
				t.Errorf("request %s has the answer %d %q", path(i), resp.StatusCode, got)
				return
			}
		}
	}
}

// A request of which the app has gone before the end of the drain is in the report, which does not say "nothing cut".
func TestReportOfAppThatGoes(t *testing.T) {
	for name, answers := range map[string]int{"refuses": -1, "ends": 0, "serves": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var app net.Addr = startClosingApp(t, false, max(0, answers))
			if answers < 0 {
				app = refused(t)
			}
			p := startPipe(t, app, HTTP)
			cfg := drain.DefaultConfig()
			cfg.MinimumDrain, cfg.QuietTime, cfg.IdleGrace = 0, 0, 0
			report, err := drain.Termination{Plane: p, Config: cfg, Log: slog.New(slog.DiscardHandler),
				Watch: drain.Watcher{Phase: func(now drain.Phase) {
					if now == drain.Waiting { // the counts from before have been read
						_, _ = io.ReadAll(dialPipe(t, p, "GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n"))
					}
				}}}.Run(ctx)
			must.Do(t, err)
			text := report.Summary()
			if failed := answers <= 0; failed != (report.Failed == 1) || failed == strings.Contains(text, "nothing cut") {
				t.Errorf("%d failed: %s", report.Failed, text)
			}
		})
	}
}
