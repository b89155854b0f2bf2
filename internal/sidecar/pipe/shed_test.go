package pipe

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// Idle connections shed the stacks that messages have made grow, and serve on; a
// drain ends them as any other.
func TestShed(t *testing.T) {
	const many = 300
	p := startPipe(t, startHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), HTTP)
	clients := make([]*client, many)
	for i := range clients {
		clients[i] = dialPipe(t, p)
		clients[i].wantOK()
	}
	for _, c := range p.all() {
		c.mu.Lock()
		c.idleSince = time.Now().Add(-2 * shedAfter)
		c.mu.Unlock()
	}
	p.shedStacks()
	for _, way := range []string{"(*up).serveUp", "(*conn).serveDown"} {
		polltest.NoError(t, func() error {
			if n := startedBy(way); n < many {
				return fmt.Errorf("%d of %d continue in new goroutines (%s)", n, many, way)
			}
			return nil
		})
	}
	for _, c := range clients {
		c.wantOK()
	}
	must(t, p.CloseIdle(ctx, 0))
	for _, c := range clients {
		c.wantEnd()
	}
}

// A connection that is used does not shed: neither one with a request in flight nor one that has
// been idle for a moment only.
func TestShedNotInUse(t *testing.T) {
	inFlight, release := make(chan struct{}), make(chan struct{})
	p := startPipe(t, startHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(inFlight)
			<-release
		}
	}), HTTP)
	dialPipe(t, p).wantOK()
	waits := dialPipe(t, p, get("/wait"))
	<-inFlight // busy alone would not do: the connection is so before its stacks have grown
	awaitActivity(t, p, 2, 1)
	for _, c := range p.all() {
		c.mu.Lock()
		c.idleSince = time.Now() // however slow this test was
		if c.busy {
			c.idleSince = c.idleSince.Add(-2 * shedAfter)
		}
		c.mu.Unlock()
		if c.shed() != shedNotYet {
			t.Error("a connection in use sheds")
		}
	}
	close(release)
	waits.response("GET")
}

// A nudge does not put off a deadline, nor bring it forward.
func TestNudgeKeepsDeadline(t *testing.T) {
	const timeout = 300 * time.Millisecond
	p := startPipe(t, startHTTP(t, func(http.ResponseWriter, *http.Request) {}), HTTP, func(c *Config) { c.HeadTimeout = timeout })
	client := dialPipe(t, p)
	client.wantOK()
	began := time.Now()
	client.send("GET / HT")
	awaitActivity(t, p, 1, 1)
	for range 20 {
		p.all()[0].client.Wake()
		time.Sleep(time.Millisecond)
	}
	answer := client.rest()
	if took := time.Since(began); took < timeout || !strings.HasPrefix(answer, "HTTP/1.1 408 ") {
		t.Errorf("after %v: %q; want a 408 after %v", took, answer, timeout)
	}
}

// startedBy is how many goroutines a method of a connection has started.
func startedBy(method string) int {
	b := make([]byte, 8<<20)
	return bytes.Count(b[:runtime.Stack(b, true)], []byte("created by github.com/lastcall-dev/lastcall/internal/sidecar/pipe."+method+" "))
}
