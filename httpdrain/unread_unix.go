//go:build unix

package httpdrain

import (
	"net"
	"syscall"
)

// hasUnread reports whether a client's bytes are in the kernel's receive buffer.
func hasUnread(nc net.Conn) (has bool) {
	c, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK) // Go's sockets do not block
		has = err == nil && n > 0
	})
	return has
}
