package pipe

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
	"github.com/lastcall-dev/lastcall/internal/wire/ws/wstest"
)

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
		{"between messages", wstest.Frame(0x81, "hi"), "", wstest.Frame(0x81, "hi") + wstest.Frame(0x88, goingAway), true, "close 1001"},
		{"within a frame that ends", "\x81\x05he", "llo", wstest.Frame(0x81, "hello") + wstest.Frame(0x88, goingAway), true, "close 1001"},
		{"what follows the boundary is not sent", "\x81\x05he", "llo" + wstest.Frame(0x81, "late"), wstest.Frame(0x81, "hello") + wstest.Frame(0x88, goingAway), true, "close 1001"},
		{"within a message that ends", wstest.Frame(0x01, "he"), wstest.Frame(0x80, "llo"), wstest.Frame(0x01, "he") + wstest.Frame(0x80, "llo") + wstest.Frame(0x88, goingAway), true, "close 1001"},
		{"within a message that does not end", wstest.Frame(0x01, "he"), wstest.Frame(0x00, "ll"), wstest.Frame(0x01, "he") + wstest.Frame(0x00, "ll") + wstest.Frame(0x88, goingAway), true, "close 1001"},
		{"within a frame that does not end", "\x81\x05he", "", "\x81\x05he", false, "truncated"},
		{"a client that does not answer", wstest.Frame(0x81, "hi"), "", wstest.Frame(0x81, "hi") + wstest.Frame(0x88, goingAway), false, "close 1001"},
		{"no frames at all", "nonsense", "", "nonsense", false, "truncated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app := startScripted(t, switching)
			p := startPipe(t, app, HTTP)
			c := dialSocket(t, p)
			c.send(wstest.Masked(0x81, "ahead"))
			app.send(tt.before)
			c.expect(tt.before)
			report := lastCall(t, p, 200*time.Millisecond)
			awaitCloseRequested(t, p)
			if tt.after != "" {
				app.send(tt.after)
			}
			c.expect(tt.client[len(tt.before):])
			if tt.answers {
				c.send(answer)
			}
			c.wantEnd()
			wantEndings(t, report(), tt.ending)
			got := <-app.got // a close frame, by the client or by us
			if tail := unmasked(got, len(goingAway)); !strings.HasPrefix(got, wstest.Masked(0x81, "ahead")) || tail != "88 "+goingAway || len(got) != len(wstest.Masked(0x81, "ahead"))+len(answer) {
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
		_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+wstest.Masked(0x81, "ahead"))
		app, err := ln.Accept()
		must(t, err)
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
