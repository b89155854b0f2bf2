//go:build unix

package traffic

import (
	"errors"

	"golang.org/x/sys/unix"
)

// open reports, without waiting, whether the peer has neither closed nor sent unexpected bytes: no request is sent on
// another connection.
func (k *kept) open() bool {
	raw, err := k.SyscallConn()
	if err != nil || k.r.Buffered() > 0 {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = errors.Is(err, unix.EAGAIN)
	})
	return open && err == nil
}
