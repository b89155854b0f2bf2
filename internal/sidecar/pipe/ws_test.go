package pipe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"pgregory.net/rapid"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
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
	must.Do(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	say(t, ws, "hello")
	return ws
}

// say has a message echoed.
func say(t *testing.T, ws *websocket.Conn, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.Do(t, ws.Write(ctx, websocket.MessageText, []byte(text)))
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

// The configured code of the close frames reaches both sides and the report.
func TestWebSocketCode(t *testing.T) {
	app := startChat(t)
	p := startPipe(t, app, HTTP, func(c *Config) { c.WebSocketCode = ws.CloseServiceRestart })
	client := dialChat(t, p)
	report := lastCall(t, p, patience) // far longer than it takes
	_, _, err := client.Read(context.Background())
	if got := websocket.CloseStatus(err); got != websocket.StatusServiceRestart {
		t.Errorf("the client sees %v", err)
	}
	app.wantEnd(t, websocket.StatusServiceRestart)
	wantEndings(t, report(), "close 1012")
	closePipe(t, p)
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
	must.Do(t, p.Resume(ctx))
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

const wsRequest = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"

// dialSocket is a WebSocket's client of which the test writes every byte.
func dialSocket(t *testing.T, p *Pipe) *client {
	c := dialPipe(t, p, wsRequest)
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

const goingAway = "\x03\xe9" + drain.MessageLastCall

// acceptKey is a server's answer to a client's key (RFC 6455, 4.2.2).
func acceptKey(key string) string {
	h := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(h[:])
}

// What the client sees depends on where in the app's messages the last call comes.
func TestWebSocketBoundaries(t *testing.T) {
	answer := wstest.Masked(0x88, goingAway)
	for _, tt := range []struct {
		name          string
		before, after string // what the app sends before and at the last call
		client        string // all that the client gets
		answers       bool   // whether it answers a close frame
		ending        string
	}{
		{"between messages", wstest.Frame(0x81, "hi"), "", wstest.Frame(0x81, "hi") + wstest.Frame(0x88, goingAway),
			true, "close 1001"},
		{"within a frame that ends", "\x81\x05he", "llo", wstest.Frame(0x81, "hello") + wstest.Frame(0x88, goingAway),
			true, "close 1001"},
		{"what follows the boundary is not sent", "\x81\x05he", "llo" + wstest.Frame(0x81, "late"),
			wstest.Frame(0x81, "hello") + wstest.Frame(0x88, goingAway), true, "close 1001"},
		{"within a message that ends", wstest.Frame(0x01, "he"), wstest.Frame(0x80, "llo"), wstest.Frame(0x01, "he") +
			wstest.Frame(0x80, "llo") + wstest.Frame(0x88, goingAway), true, "close 1001"},
		{"within a message that does not end", wstest.Frame(0x01, "he"), wstest.Frame(0x00, "ll"),
			wstest.Frame(0x01, "he") + wstest.Frame(0x00, "ll") + wstest.Frame(0x88, goingAway), true, "close 1001"},
		{"within a frame that does not end", "\x81\x05he", "", "\x81\x05he", false, "truncated"},
		{"a client that does not answer", wstest.Frame(0x81, "hi"), "", wstest.Frame(0x81, "hi") +
			wstest.Frame(0x88, goingAway), false, "close 1001"},
		{"no frames at all", "nonsense", "", "nonsense", false, "truncated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			app := startScripted(t, switching)
			p := startPipe(t, app, HTTP)
			c := dialSocket(t, p)
			c.send(wstest.Masked(0x81, "ahead"))
			app.send(tt.before)
			c.expect(tt.before)
			window := patience
			if !tt.answers || strings.Contains(tt.name, "does not end") {
				window = time.Second // enough for what the app sends
			}
			report := lastCall(t, p, window)
			awaitCloseRequested(t, p)
			if tt.after != "" {
				app.send(tt.after)
			}
			c.expect(tt.client[len(tt.before):])
			if tt.answers {
				c.send(answer)
			}
			c.wantEnd()
			left := report()
			wantEndings(t, left, tt.ending)
			if left[0].Protocol != "websocket" || left[0].Request != "GET /ws" {
				t.Errorf("report %+v", left)
			}
			got := <-app.got // a close frame, by the client or by us
			if tail := unmasked(got, len(goingAway)); !strings.HasPrefix(got, wstest.Masked(0x81, "ahead")) ||
				tail != "88 "+goingAway || len(got) != len(wstest.Masked(0x81, "ahead"))+len(answer) {
				t.Errorf("the app got %q", got)
			}
			closePipe(t, p)
		})
	}
}

// A client that reads nothing delays no other connection's last call.
func TestWebSocketStuckClient(t *testing.T) {
	app := startScripted(t, switching)
	p := startPipe(t, app, HTTP)
	dialSocket(t, p)
	c := <-app.conn
	for { // until everything between the app and the client is full
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := io.WriteString(c, wstest.Frame(0x82, strings.Repeat("x", 60000))); err != nil {
			break
		}
	}
	report := lastCall(t, p, 100*time.Millisecond)
	wantEndings(t, report(), "truncated")
	p.Kill()
	<-app.got
}

// An app that goes away, and a client that does, end the other side.
func TestWebSocketPeersGo(t *testing.T) {
	t.Run("app", func(t *testing.T) {
		app := startScripted(t, switching)
		p := startPipe(t, app, HTTP)
		c := dialSocket(t, p)
		_ = (<-app.conn).Close()
		c.wantEnd()
		awaitActivity(t, p, 0, 0)
		<-app.got
	})
	t.Run("client", func(t *testing.T) {
		app := startScripted(t, switching)
		p := startPipe(t, app, HTTP)
		c := dialSocket(t, p)
		c.send(wstest.Masked(0x81, "bye"))
		_ = c.Close()
		if got := <-app.got; got != wstest.Masked(0x81, "bye") {
			t.Errorf("the app got %q", got)
		}
		awaitActivity(t, p, 0, 0)
	})
}

// unmasked reads the one masked frame at the end of s.
func unmasked(s string, size int) string {
	b := []byte(s)[len(s)-size-6:]
	for i := range b[6:] {
		b[6+i] ^= b[2+i%4]
	}
	return fmt.Sprintf("%x %s", b[0], b[6:])
}

// Wherever in an app's messages the last call comes, the client gets whole
// messages, then our close frame, then the end; and what it says itself reaches
// the app, with its close frame at the end.
func TestWebSocketEndsBetweenMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		ends := map[int]bool{0: true}
		for i := range rapid.IntRange(0, 5).Draw(t, "messages") {
			size := rapid.SampledFrom([]int{0, 1, 125, 126, 9000, 70000}).Draw(t, "size")
			if rapid.Bool().Draw(t, "in two frames") {
				all = append(all, wstest.Frame(0x02, string(fill(i, size)))...)
				all = append(all, wstest.Frame(0x80, "rest")...)
			} else {
				all = append(all, wstest.Frame(0x82, string(fill(i, size)))...)
			}
			ends[len(all)] = true
		}
		at := rapid.IntRange(0, len(all)).Draw(t, "the last call after bytes")

		ln := nettest.Listen(t, "127.0.0.1:0")
		defer ln.Close()
		p, conn := startClient(t, ln.Addr(), HTTP)
		_, _ = io.WriteString(conn, wsRequest+wstest.Masked(0x81, "ahead"))
		app, err := ln.Accept()
		must.Do(t, err)
		defer app.Close()
		_ = app.SetDeadline(time.Now().Add(patience))
		fromClient := bufio.NewReader(app)
		readHead(fromClient)

		_, _ = app.Write([]byte(switching))
		_, _ = app.Write(all[:at])
		r := conn.r
		conn.switches()
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = p.LastCall(ctx, patience) }()
		go func() { _, _ = app.Write(all[at:]) }()

		var f ws.Follower
		var got []byte
		for !f.IsClosed() { // the close frame is answered
			b := make([]byte, 4096)
			n, err := r.Read(b)
			if err != nil {
				t.Fatalf("after %d bytes: %v", len(got), err)
			}
			got = append(got, b[:n]...)
			if f.Follow(b[:n], ws.AtClose); f.IsLost() {
				t.Fatalf("these are no frames: %.60q", got)
			}
		}
		_, _ = io.WriteString(conn, wstest.Masked(0x88, goingAway))
		rest, err := io.ReadAll(r)
		if err != nil || len(rest) != 0 {
			t.Fatalf("after the close frame: %q, %v", rest, err)
		}
		bye := []byte(wstest.Frame(0x88, goingAway))
		messages, ok := bytes.CutSuffix(got, bye)
		if !ok || !bytes.HasPrefix(all, messages) || !ends[len(messages)] {
			t.Fatalf("the client got %d bytes, which is no end of a message", len(messages))
		}
		b, err := io.ReadAll(fromClient)
		if err != nil || string(b) != wstest.Masked(0x81, "ahead")+wstest.Masked(0x88, goingAway) {
			t.Fatalf("the app got %q, %v", b, err)
		}
		<-ended
	})
}
