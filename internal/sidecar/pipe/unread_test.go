package pipe

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
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
		must(t, err)
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
