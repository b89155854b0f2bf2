package pipe

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

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
