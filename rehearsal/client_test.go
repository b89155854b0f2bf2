package rehearsal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// serve answers the first request of each connection with raw bytes and hangs up.
func serve(t *testing.T, response string) string {
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
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(c, response)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return "http://" + ln.Addr().String() + "/delay/1"
}

func TestAsk(t *testing.T) {
	for _, tt := range []struct {
		name, response string
		status         int
		body           string
		broken         bool
	}{
		{"200", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, "hi", false},
		{"503", fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%s", len(terminationBody), terminationBody), 503, terminationBody, false},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200, "hi", false},
		{"cut", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi", 200, "hi", true},
		{"nothing", "", 0, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := ask(t.Context(), serve(t, tt.response))
			if a.status != tt.status || string(a.body) != tt.body || (a.err != nil) != tt.broken {
				t.Errorf("got %d %q, %v", a.status, a.body, a.err)
			}
			if a.took() <= 0 {
				t.Errorf("it took %v", a.took())
			}
		})
	}
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if a := ask(ctx, serve(t, "")); a.err == nil {
			t.Errorf("got %d", a.status)
		}
	})
}

// An idle connection's end is distinguished from a reset, and from our own close.
func TestIdleClients(t *testing.T) {
	for _, tt := range []struct {
		name           string
		end            func(*net.TCPConn)
		closed, broken int
	}{
		{"FIN", func(c *net.TCPConn) { _ = c.Close() }, 1, 0},
		{"reset", func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }, 0, 1},
		{"held", func(*net.TCPConn) {}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln := nettest.Listen(t, "127.0.0.1:0")
			defer func() { _ = ln.Close() }()
			pod := make(chan *net.TCPConn, 2)
			go func() {
				for range 2 {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					pod <- c.(*net.TCPConn)
					// Only the first gets a request; it is not kept alive, and so omitted.
					if len(pod) == 1 {
						if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
							_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
						}
					}
				}
			}()
			idle, err := connectIdle(t.Context(), ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			first, second := <-pod, <-pod
			_ = first.Close()
			tt.end(second)
			if tt.closed+tt.broken > 0 {
				idle.ended.Wait()
			}
			idle.close()
			_ = second.Close()
			if len(idle.conns) != 1 || idle.closed != tt.closed || len(idle.broken) != tt.broken {
				t.Errorf("%d connections, %d closed, broken %v", len(idle.conns), idle.closed, idle.broken)
			}
		})
	}
}
