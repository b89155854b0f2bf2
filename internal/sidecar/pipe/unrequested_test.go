package pipe

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

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
					p := startPipe(t, app, HTTP)
					c := dialPipe(t, p)
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
