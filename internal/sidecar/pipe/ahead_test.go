package pipe

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

const upgradeToX = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"

// aheadApp answers an upgrade after it has read what it needs behind it.
func aheadApp(t *testing.T, needs int, answer string) (at net.Addr, rest chan string) {
	rest = make(chan string, 1)
	return startApp(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		readHead(r)
		b := make([]byte, needs)
		if _, err := io.ReadFull(r, b); err != nil {
			rest <- err.Error()
			return
		}
		_, _ = io.WriteString(c, answer)
		all, _ := io.ReadAll(r)
		rest <- string(b) + string(all)
	}), rest
}

// Bytes behind an upgrade that are no request reach the app before it answers, in order with those that follow.
func TestBytesBehindUpgrade(t *testing.T) {
	const switches = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
	app, rest := aheadApp(t, 5, switches)
	_, c := startClient(t, app, HTTP)
	c.send(upgradeToX + "early")
	c.expect(switches)
	c.send("GET /late")
	_ = c.CloseWrite()
	if got := <-rest; got != "earlyGET /late" {
		t.Errorf("the app got %q", got)
	}
}

// A stream to Icecast has no length. It begins at the 100 of the app.
func TestStreamBehindContinue(t *testing.T) {
	const continues = "HTTP/1.1 100 Continue\r\n\r\n"
	for body, framing := range map[string]string{"GET is no request here": "", "12345": "Content-Length: 5\r\n"} {
		app, rest := aheadApp(t, 0, continues)
		_, c := startClient(t, app, HTTP)
		c.send("PUT /stream HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n" + framing + "\r\n")
		c.expect(continues)
		c.send(body)
		_ = c.CloseWrite()
		if got := <-rest; got != body {
			t.Errorf("the app got %q", got)
		}
	}
}

// If the app refuses the upgrade, they may be anything: the connection ends, and nothing else is forwarded.
func TestBytesBehindRefusedUpgrade(t *testing.T) {
	app, rest := aheadApp(t, 5, okBody)
	_, c := startClient(t, app, HTTP)
	c.send(upgradeToX + "early")
	if resp := c.response("GET"); resp.StatusCode != 200 || !resp.Close {
		t.Errorf("status %d, closes: %t", resp.StatusCode, resp.Close)
	}
	_, _ = io.WriteString(c, get("/hidden"))
	c.wantEnd()
	_ = c.CloseWrite()
	if got := <-rest; got != "early" {
		t.Errorf("the app got %q", got)
	}
}

// The end of the client behind such bytes is seen before the answer.
func TestEndBehindUpgrade(t *testing.T) {
	app, rest := aheadApp(t, 6, okBody)
	_, c := startClient(t, app, HTTP)
	c.send(upgradeToX + "early")
	_ = c.CloseWrite()
	if got := <-rest; got != io.ErrUnexpectedEOF.Error() {
		t.Errorf("the app got %q", got)
	}
}

// A request behind an upgrade waits for the answer, and is a request if that is a refusal.
func TestRequestBehindUpgrade(t *testing.T) {
	for _, follows := range []string{get("/2"), "GET /2\r\n\r\n", "\r\n" + get("/2")} {
		var p *Pipe
		app := startApp(t, func(c net.Conn) {
			r := bufio.NewReader(c)
			readHead(r)
			_ = r
			if p.Stats().Requests != 1 {
				t.Errorf("%d requests", p.Stats().Requests)
			}
			_, _ = io.WriteString(c, okBody)
			if head := readHead(r); head != "" && !strings.HasPrefix(head, "GET /2 HTTP/1.1\r\n") {
				t.Errorf("the app got %q", head)
			}
			_, _ = io.WriteString(c, okBody)
		})
		p = startPipe(t, app, HTTP)
		c := dialPipe(t, p, upgradeToX+follows)
		if resp := c.response("GET"); resp.Close {
			t.Error("the connection is not kept")
		}
		if resp := c.response("GET"); resp.StatusCode != 200 && resp.StatusCode != 400 {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
}
