package pipe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
)

// howEnds reads a connection to its end: how many bytes, and which end.
func howEnds(c io.Reader) string {
	n, err := io.Copy(io.Discard, c)
	switch {
	case err == nil:
		return fmt.Sprintf("%d, FIN", n)
	case errors.Is(err, syscall.ECONNRESET):
		return fmt.Sprintf("%d, RST", n)
	}
	return fmt.Sprintf("%d, %v", n, err)
}

func reset(t *testing.T, c interface {
	SetLinger(int) error
	Close() error
}) {
	t.Helper()
	if err := c.SetLinger(0); err != nil {
		t.Error(err)
	}
	_ = c.Close()
}

// A reset of either side reaches the other as a reset, in all that passes as bytes: after a FIN a part of a transfer
// would look whole. The bytes before it are delivered.
func TestResetIsPassedOn(t *testing.T) {
	const size = 1 << 20
	for _, protocol := range []Protocol{TCP, Auto} {
		t.Run(protocol.String()+", the app's", func(t *testing.T) {
			read := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				_, _ = io.WriteString(c, strings.Repeat("x", size))
				<-read
				reset(t, c.(*net.TCPConn))
			})
			p := startPipe(t, app, protocol)
			c := dialPipe(t, p, "\x01")
			if _, err := io.ReadFull(c.r, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			close(read)
			if got := howEnds(c.r); got != "0, RST" {
				t.Error(got)
			}
			awaitNone(t, p)
		})
		t.Run(protocol.String()+", the client's", func(t *testing.T) {
			got, read := make(chan string, 1), make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				_, err := io.ReadFull(c, make([]byte, size))
				close(read)
				got <- fmt.Sprint(err, " ", howEnds(c))
			})
			p := startPipe(t, app, protocol)
			c := dialPipe(t, p, "\x02"+strings.Repeat("x", size-1))
			<-read
			reset(t, c)
			if got := <-got; got != "<nil> 0, RST" {
				t.Error(got)
			}
			awaitNone(t, p)
		})
		t.Run(protocol.String()+", after the client's FIN", func(t *testing.T) {
			app := startApp(t, func(c net.Conn) {
				_, _ = io.Copy(io.Discard, c)
				reset(t, c.(*net.TCPConn))
			})
			p := startPipe(t, app, protocol)
			c := dialPipe(t, p, "\x01")
			_ = c.CloseWrite()
			if got := howEnds(c.r); got != "0, RST" {
				t.Error(got)
			}
			awaitNone(t, p)
		})
		t.Run(protocol.String()+", kill", func(t *testing.T) {
			got := make(chan string, 1)
			app := startApp(t, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				_, _ = io.WriteString(c, "half")
				got <- howEnds(c)
			})
			p := startPipe(t, app, protocol)
			c := dialPipe(t, p, "\x01")
			c.expect("half")
			p.Kill()
			if got := howEnds(c.r); got != "0, RST" {
				t.Error("the client:", got)
			}
			if got := <-got; got != "0, RST" {
				t.Error("the app:", got)
			}
		})
	}
	// The app of an upload by HTTP that ends with the connection, or is an upgrade, cannot distinguish the two otherwise.
	t.Run("http, the client's", func(t *testing.T) {
		got, read := make(chan string, 1), make(chan struct{})
		app := startApp(t, func(c net.Conn) {
			_, err := io.ReadFull(c, make([]byte, len(get("/"))))
			close(read)
			got <- fmt.Sprint(err, " ", howEnds(c))
		})
		p := startPipe(t, app, HTTP)
		c := dialPipe(t, p, get("/"))
		<-read
		reset(t, c)
		if got := <-got; got != "<nil> 0, RST" {
			t.Error(got)
		}
		awaitNone(t, p)
	})
}

// All that a side has sent before its FIN is delivered, however slowly it is read.
func TestStreamIsDeliveredBeforeFIN(t *testing.T) {
	const size = 4 << 20
	got, sent := make(chan string, 1), make(chan struct{})
	app := startApp(t, func(c net.Conn) {
		_, _ = io.WriteString(c, strings.Repeat("x", size))
		_ = c.(*net.TCPConn).CloseWrite()
		<-sent
		got <- howEnds(c)
	})
	p := startPipe(t, app, TCP)
	c := dialPipe(t, p)
	go func() {
		_, _ = io.WriteString(c, strings.Repeat("y", size))
		_ = c.CloseWrite()
		close(sent)
	}()
	if got := howEnds(c.r); got != fmt.Sprint(size, ", FIN") {
		t.Error("the client:", got)
	}
	if got := <-got; got != fmt.Sprint(size, ", FIN") {
		t.Error("the app:", got)
	}
	awaitNone(t, p)
}
