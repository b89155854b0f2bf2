package grpcdrain

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeout is how long the kernel waits for a client to acknowledge sent bytes: grpc.Server's own
// default (keepalive.ServerParameters.Timeout), which it sets only on a bare *net.TCPConn.
const userTimeout = 20_000 // ms

func setUserTimeout(nc net.Conn) {
	c, ok := nc.(syscall.Conn)
	if _, isTCP := nc.(*net.TCPConn); !ok || !isTCP {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeout)
		})
	}
}
