package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// More clients than descriptors wait in the kernel's queue: none is accepted that could not be connected to the app.
func TestFewFiles(t *testing.T) {
	for _, last := range []string{"close", "keep-alive"} {
		t.Run(last, func(t *testing.T) {
			t.Parallel()
			var came atomic.Int32
			many := make(chan struct{})
			app := nettest.Listen(t, "127.0.0.1:0")
			nettest.Serve(t, app, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if came.Add(1) == 20 { // more would be accepted if they could not be connected
					close(many)
				}
				<-many
			}))
			cmd := exec.Command("sh", "-c", `ulimit -n 64 && exec "$0" "$@"`, "lastcall")
			cmd.Args[0] = "lastcall"
			a := startAgent(t, cmd, app.Addr().String()+",protocol=http")
			statuses := make(chan string, 100)
			var clients sync.WaitGroup
			for range cap(statuses) {
				c, err := net.Dial("tcp", a.address)
				must.Do(t, err)
				_ = c.SetDeadline(time.Now().Add(patience))
				fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: app\r\nConnection: %s\r\n\r\n", last)
				clients.Go(func() {
					defer c.Close()
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil {
						statuses <- err.Error()
						return
					}
					_ = resp.Body.Close()
					statuses <- resp.Status
				})
			}
			clients.Wait()
			close(statuses)
			got := make(map[string]int)
			for s := range statuses {
				got[s]++
			}
			if got["200 OK"] != cap(statuses) {
				t.Errorf("the answers: %v", got)
			}
			if s := textOf("http://" + a.status + "/healthz/ready"); s != "ready\n" {
				t.Errorf("the status port answers %q", s)
			}
		})
	}
}
