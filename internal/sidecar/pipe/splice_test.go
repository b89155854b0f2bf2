package pipe

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/wire/ws/wstest"
)

// Large bodies and frames arrive as they were, both ways, and what follows them
// does too.
func TestLargeMessages(t *testing.T) {
	body := fill(7, 3<<20)
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", "3145728")
		_, _ = w.Write(b)
	})
	c := dialPipe(t, startPipe(t, app, HTTP))
	for range 2 {
		go func() {
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3145728\r\n\r\n")
			_, _ = c.Write(body)
		}()
		if got := bodyOf(c.response("POST")); got != string(body) {
			t.Fatalf("%d bytes came back that are not those sent", len(got))
		}
	}
}

func TestLargeFrames(t *testing.T) {
	app := startScripted(t, switching)
	p := startPipe(t, app, HTTP)
	c := dialSocket(t, p)
	big := wstest.Frame(0x82, string(fill(3, 1<<20)))
	answer := wstest.Masked(0x82, string(fill(4, 1<<20)))
	sent := make(chan struct{})
	go func() { defer close(sent); app.send(big + wstest.Frame(0x81, "and a small one")) }()
	c.expect(big + wstest.Frame(0x81, "and a small one"))
	<-sent
	c.send(answer)
	report := lastCall(t, p, patience)
	c.expect(wstest.Frame(0x88, goingAway))
	c.send(wstest.Masked(0x88, goingAway))
	c.wantEnd()
	if got := <-app.got; got != answer+wstest.Masked(0x88, goingAway) {
		t.Errorf("the app got %d bytes that are not those sent", len(got))
	}
	wantEndings(t, report(), "close 1001")
}

// A body in flight within the kernel is cut as any other, and its connection's
// ends are followed.
func TestLargeMessagesCut(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
	start := func(t *testing.T) (*scripted, *Pipe, *client) {
		app := startScripted(t, head)
		p, c := startClient(t, app, HTTP)
		c.send(get("/"))
		app.send(string(make([]byte, 1<<20)))
		if _, err := io.ReadFull(c.r, make([]byte, len(head)+1<<20)); err != nil {
			t.Fatal(err)
		}
		return app, p, c
	}
	t.Run("last call", func(t *testing.T) {
		app, p, c := start(t)
		wantEndings(t, lastCall(t, p, patience)(), "truncated")
		c.wantEnd()
		<-app.got
	})
	t.Run("the app goes", func(t *testing.T) {
		app, p, c := start(t)
		_ = (<-app.conn).Close()
		c.wantEnd()
		polltest.Eventually(t, "the truncated response is counted", func() bool { return p.Stats().Truncated == 1 })
		<-app.got
	})
	t.Run("the client goes", func(t *testing.T) {
		app, p, c := start(t)
		_ = c.Close()
		<-app.got
		awaitActivity(t, p, 0, 0)
	})
	t.Run("the client takes nothing", func(t *testing.T) {
		app, p, _ := start(t)
		conn := <-app.conn
		for {
			_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
				break
			}
		}
		wantEndings(t, lastCall(t, p, patience)(), "truncated")
		p.Kill()
		<-app.got
	})
	t.Run("an upload", func(t *testing.T) {
		seen := make(chan int64, 2)
		app := startHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
			seen <- 0
			n, _ := io.Copy(io.Discard, r.Body)
			seen <- n
		})
		p, c := startClient(t, app, HTTP)
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
		part := bytes.Repeat([]byte("x"), 1<<20)
		_, _ = c.Write(part)
		<-seen // the connection is busy before the app has the request
		wantEndings(t, lastCall(t, p, patience)(), "503")
		if resp := c.response("POST"); resp.StatusCode != 503 {
			t.Errorf("%v", resp)
		}
		if n := <-seen; n > int64(len(part)) {
			t.Errorf("the app got %d bytes", n)
		}
	})
}
