package pipe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// What an app can write to a client that does not read is bounded, as without a sidecar: an app that streams, such as a
// database's dump, learns that its client is slow, and does not run ahead of it by many megabytes.
func TestUnreadResponse(t *testing.T) {
	const (
		most    = 2 << 20 // more than direct: our two sockets and a pipe of the kernel
		upgrade = "GET / HTTP/1.1\r\nHost: app\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
	)
	direct := fillUnread(t, "", func(app net.Addr) {
		c, err := net.Dial("tcp", app.String())
		must.Do(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, get("/"))
	})
	for name, tt := range map[string]struct {
		protocol  Protocol
		ask, head string
	}{
		"length": {HTTP, get("/"), "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"},
		"chunks": {HTTP, get("/"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000\r\n"},
		"no end": {HTTP, get("/"), "HTTP/1.1 200 OK\r\n\r\n"},
		"opaque": {TCP, get("/"), ""},
		"tunnel": {Auto, upgrade, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := fillUnread(t, tt.head, func(app net.Addr) {
				_, c := startClient(t, app, tt.protocol)
				c.send(tt.ask)
			})
			if t.Logf("%.1f MiB, direct %.1f", mebibytes(n), mebibytes(direct)); n > direct+most {
				t.Errorf("the app has written %d bytes, direct %d", n, direct)
			}
		})
	}
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// fillUnread returns how many bytes an app can write behind a head to a client that does not read.
func fillUnread(t *testing.T, head string, ask func(app net.Addr)) (wrote int64) {
	full := make(chan struct{})
	ask(startApp(t, func(c net.Conn) {
		defer close(full)
		readHead(bufio.NewReader(c))
		_, err := io.WriteString(c, head)
		for part := make([]byte, 64<<10); err == nil; {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // without any byte of it written
			var n int
			n, err = c.Write(part)
			wrote += int64(n)
		}
	}))
	<-full
	return wrote
}

// A client of HTTP/2 that does not read holds up neither the drain nor the closing of idle connections. It gets the
// GOAWAY when it reads again.
func TestDrainWithAnUnreadStream(t *testing.T) {
	t.Parallel()
	full := make(chan struct{})
	p, c := startRaw(t, startApp(t, func(app net.Conn) {
		f := serveFrames(app)
		respond(f, nextRequest(f), false, ":status", "200")
		var frames bytes.Buffer
		for part := http2.NewFramer(&frames, nil); frames.Len() < 16<<20; {
			must.Do(t, part.WriteData(1, false, make([]byte, 16<<10)))
		}
		n := 0
		for err := error(nil); err == nil; {
			_ = app.SetWriteDeadline(time.Now().Add(time.Second)) // without any byte of it written
			var m int
			m, err = app.Write(frames.Bytes()[n : n+64<<10])
			n += m
		}
		close(full)
		_ = app.SetWriteDeadline(time.Time{})
		_, _ = app.Write(frames.Bytes()[n:])
		_, _ = io.Copy(io.Discard, app)
	}), HTTP)
	c.request(1, true, ":path", "/")
	<-full
	drained := make(chan error, 1)
	go func() {
		ctx := context.Background()
		drained <- errors.Join(p.Drain(ctx), p.CloseIdle(ctx, 0))
	}()
	select {
	case err := <-drained:
		must.Do(t, err)
	case <-time.After(patience):
		t.Error("the drain waits for the client")
	}
	c.until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameGoAway })
}
