package rehearsal

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

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
			must.Do(t, err)
			first, second := <-pod, <-pod
			_ = first.Close()
			tt.end(second)
			if tt.closed+tt.broken > 0 {
				idle.end(time.Minute)
			}
			idle.end(0)
			_ = second.Close()
			if len(idle.conns) != 1 || idle.closed != tt.closed || len(idle.broken) != tt.broken {
				t.Errorf("%d connections, %d closed, broken %v", len(idle.conns), idle.closed, idle.broken)
			}
		})
	}
}
