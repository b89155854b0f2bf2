package pipe

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
	"github.com/lastcall-dev/lastcall/internal/wire/ws/wstest"
)

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
		p := startPipe(t, ln.Addr(), HTTP)
		conn := dialPipe(t, p)
		_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+wstest.Masked(0x81, "ahead"))
		app, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer app.Close()
		_ = app.SetDeadline(time.Now().Add(patience))
		fromClient := bufio.NewReader(app)
		readHead(fromClient)

		_, _ = app.Write([]byte(switching))
		_, _ = app.Write(all[:at])
		r := conn.r
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
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
