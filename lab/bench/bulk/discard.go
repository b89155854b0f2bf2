package bulk

import (
	"io"
	"net"
	"syscall"
)

// nowhere is what the kernel asks for a length of; with MSG_TRUNC it writes nothing to it (tcp(7)).
var nowhere [portion]byte

// discard takes size bytes from the connection, from a TCP connection without copying them to this process; moved
// receives each portion.
func discard(conn net.Conn, size int64, moved func(int64)) error {
	plain, ok := conn.(*net.TCPConn)
	if !ok {
		return discardByReading(conn, size, moved)
	}
	raw, err := plain.SyscallConn()
	if err != nil {
		return err
	}
	for size > 0 {
		var got int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			for {
				got, _, failed = syscall.Recvfrom(int(fd), nowhere[:min(size, portion)], syscall.MSG_TRUNC)
				if failed != syscall.EINTR {
					return failed != syscall.EAGAIN
				}
			}
		})
		switch {
		case err != nil:
			return err
		case failed != nil:
			return failed
		case got == 0:
			return io.ErrUnexpectedEOF
		}
		size -= int64(got)
		if moved != nil {
			moved(int64(got))
		}
	}
	return nil
}

func discardByReading(conn net.Conn, size int64, moved func(int64)) error {
	buffer := make([]byte, 64<<10)
	for size > 0 {
		n, err := conn.Read(buffer[:min(size, int64(len(buffer)))])
		size -= int64(n)
		if moved != nil {
			moved(int64(n))
		}
		if err != nil && size > 0 {
			return err
		}
	}
	return nil
}
