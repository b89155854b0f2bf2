package pipe

import (
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
		c := dialPipe(t, p)
		c.send("POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx" + bad)
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
