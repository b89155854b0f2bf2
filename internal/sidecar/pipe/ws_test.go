package pipe

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/wire/ws/wstest"
)

// chat is an app of net/http that echoes messages over WebSockets, and records with
// which error each has ended.
type chat struct {
	net.Addr
	server *http.Server
	ended  chan error
}

func startChat(t *testing.T) *chat {
	a := &chat{ended: make(chan error, 10)}
	a.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			a.ended <- err
			return
		}
		defer ws.CloseNow()
		for {
			kind, b, err := ws.Read(context.Background())
			if err == nil {
				err = ws.Write(context.Background(), kind, b)
			}
			if err != nil {
				a.ended <- err
				return
			}
		}
	})}
	a.Addr, _ = startServer(t, "127.0.0.1:0", a.server)
	return a
}

func (a *chat) wantEnd(t *testing.T, status websocket.StatusCode) {
	t.Helper()
	select {
	case err := <-a.ended:
		if got := websocket.CloseStatus(err); got != status {
			t.Errorf("the app sees status %d (%v); want %d", got, err, status)
		}
	case <-time.After(patience):
		t.Error("the app did not see the end")
	}
}

func dialChat(t *testing.T, p *Pipe) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	ws, _, err := websocket.Dial(ctx, "ws://"+p.Addr(0).String()+"/chat?room=1", nil)
	must(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	say(t, ws, "hello")
	return ws
}

// say has a message echoed.
func say(t *testing.T, ws *websocket.Conn, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, ws.Write(ctx, websocket.MessageText, []byte(text)))
	if _, b, err := ws.Read(ctx); err != nil || string(b) != text {
		t.Fatalf("got %.60q, %v; want %.60q", b, err, text)
	}
}

// lastCall runs one concurrently with the test; report is its result.
func lastCall(t *testing.T, p *Pipe, window time.Duration) (report func() []drain.Conversation) {
	got := make(chan []drain.Conversation, 1)
	go func() {
		left, err := p.LastCall(ctx, window)
		if err != nil {
			t.Error(err)
		}
		got <- left
	}()
	return func() []drain.Conversation {
		t.Helper()
		select {
		case left := <-got:
			return left
		case <-time.After(patience):
			t.Fatal("the last call does not end")
			return nil
		}
	}
}

// wantEndings wants these endings in a report.
func wantEndings(t *testing.T, left []drain.Conversation, endings ...string) {
	t.Helper()
	var got []string
	for _, c := range left {
		got = append(got, c.Ending)
	}
	if strings.Join(got, ", ") != strings.Join(endings, ", ") {
		t.Errorf("report %+v; want %q", left, endings)
	}
}

func TestWebSocketLastCall(t *testing.T) {
	for _, tt := range []struct {
		code   int
		status websocket.StatusCode
		ending string
	}{{0, websocket.StatusGoingAway, "close 1001"}, {1012, websocket.StatusServiceRestart, "close 1012"}} {
		t.Run(tt.ending, func(t *testing.T) {
			app := startChat(t)
			p := startPipe(t, app, HTTP, func(c *Config) { c.WebSocketCode = tt.code })
			ws := dialChat(t, p)
			_ = p.Drain(ctx)
			_ = p.CloseIdle(ctx, 0)
			awaitActivity(t, p, 1, 1)
			say(t, ws, strings.Repeat("still here ", 2000))

			report := lastCall(t, p, patience) // far longer than it takes
			_, _, err := ws.Read(context.Background())
			if got := websocket.CloseStatus(err); got != tt.status {
				t.Errorf("the client sees %v; want status %d", err, tt.status)
			}
			app.wantEnd(t, tt.status)
			left := report()
			if len(left) != 1 || left[0].Ending != tt.ending || left[0].Protocol != "websocket" || left[0].Request != "GET /chat?room=1" {
				t.Errorf("report %+v", left)
			}
			closePipe(t, p)
		})
	}
}

// With CloseEarly clients are sent elsewhere while there is time: nothing is left
// for the last call, and nothing was cut.
func TestWebSocketCloseEarly(t *testing.T) {
	app := startChat(t)
	p := startPipe(t, app, HTTP, func(c *Config) { c.WebSockets, c.Spread = CloseEarly, time.Millisecond })
	clients := []*websocket.Conn{dialChat(t, p), dialChat(t, p), dialChat(t, p)}
	_ = p.Drain(ctx)
	say(t, clients[0], "the drain alone ends nothing")
	_ = p.CloseIdle(ctx, 0)
	for _, ws := range clients {
		_, _, err := ws.Read(context.Background())
		if got := websocket.CloseStatus(err); got != websocket.StatusGoingAway {
			t.Errorf("the client sees %v", err)
		}
		app.wantEnd(t, websocket.StatusGoingAway)
	}
	awaitActivity(t, p, 0, 0)
	wantEndings(t, lastCall(t, p, patience)())
}

// A drain that is cancelled before a message boundary ends nothing.
func TestWebSocketResume(t *testing.T) {
	app := startScripted(t, switching)
	p := startPipe(t, app, HTTP, func(c *Config) { c.WebSockets, c.Spread = CloseEarly, time.Millisecond })
	c := dialSocket(t, p)
	app.send("\x81\x05he") // within a frame
	c.expect("\x81\x05he")
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	awaitCloseRequested(t, p)
	must(t, p.Resume(ctx))
	app.send("llo" + wstest.Frame(0x81, "again"))
	c.expect("llo" + wstest.Frame(0x81, "again"))
	awaitActivity(t, p, 1, 1)
}

// awaitCloseRequested waits until every WebSocket has a pending close frame.
func awaitCloseRequested(t *testing.T, p *Pipe) {
	t.Helper()
	for _, c := range p.all() {
		polltest.Eventually(t, "a close frame is pending", c.lastWordRequested.Load)
	}
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"

// dialSocket is a WebSocket's client of which the test writes every byte.
func dialSocket(t *testing.T, p *Pipe) *client {
	c := dialPipe(t, p, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	c.switches()
	awaitActivity(t, p, 1, 1)
	return c
}

// switches reads the response that switches protocols.
func (c *client) switches() {
	c.t.Helper()
	if resp := c.head(); resp.StatusCode != http.StatusSwitchingProtocols {
		c.t.Fatal(resp)
	}
}

const goingAway = "\x03\xe9" + wsReason

// acceptKey is a server's answer to a client's key (RFC 6455, 4.2.2).
func acceptKey(key string) string {
	h := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(h[:])
}
