package nettest

import (
	"context"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A server gets the port, repeatedly; no other socket does.
func TestFreeAddress(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		address := FreeAddress(t, host)
		for range 2 {
			ln, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			_ = ln.Close()
		}
		another := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0) })
		}}
		if ln, err := another.Listen(context.Background(), "tcp", address); err == nil {
			_ = ln.Close()
			t.Errorf("%s is given to a socket that does not share", address)
		}
		local, _ := net.ResolveTCPAddr("tcp", address)
		if conn, err := net.DialTCP("tcp", local, local); err == nil {
			_ = conn.Close()
			t.Errorf("%s is given to a connection", address)
		}
	}
}
