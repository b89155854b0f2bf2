package tcp

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a TCP connection for the hot path: its system calls bypass the scheduler's hand-over, which a non-blocking
// socket does not need, and allocate nothing.
//
// Receive, Send, CloseWrite, Close and Move use TLS if there is any. Everything else (deadlines, counts of bytes, Shut)
// acts on the TCP connection.
type Socket struct {
	*net.TCPConn
	Raw syscall.RawConn
	tls *tlsLayer // nil without TLS; set before the socket is used

	deadline sync.Mutex // guards the read deadline
	until    time.Time  // the read deadline as set; zero for none
	woken    bool       // by Wake

	// The write in progress, guarded by the caller's lock.
	out     []byte
	outMore bool
	outErr  error
	writeFn func(uintptr) bool
}

// NewSocket wraps a connection.
func NewSocket(c *net.TCPConn) (*Socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Socket{TCPConn: c, Raw: raw}
	s.writeFn = s.writeSome
	return s, nil
}

// Send writes all of p. With more, the kernel holds the last segment back to share a packet with the next write or FIN.
func (s *Socket) Send(p []byte, more bool) error {
	if s.tls != nil {
		return s.tls.send(p, more)
	}
	return s.SendClear(p, more)
}

// SendClear is Send below TLS.
func (s *Socket) SendClear(p []byte, more bool) error {
	s.out, s.outMore, s.outErr = p, more, nil
	if err := s.Raw.Write(s.writeFn); err != nil {
		return err
	}
	return s.outErr
}

func (s *Socket) writeSome(fd uintptr) bool {
	flags := uintptr(unix.MSG_NOSIGNAL)
	if s.outMore {
		flags |= unix.MSG_MORE
	}
	for len(s.out) > 0 {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&s.out[0])), uintptr(len(s.out)), flags, 0, 0)
		switch errno {
		case 0:
			s.out = s.out[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			s.outErr = os.NewSyscallError("send", errno)
			return true
		}
	}
	return true
}

// Receive reads into p without waiting. fd is the socket's own, from the callback of Raw.Read. It returns EAGAIN if
// there is nothing to read, and 0 without an error at the end.
func (s *Socket) Receive(fd uintptr, p []byte) (int, syscall.Errno) {
	if s.tls != nil {
		return s.tls.receive(fd, p)
	}
	return receive(fd, p)
}

func receive(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		// recvfrom is cheaper than read: it skips the file layer.
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), 0, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// CloseWrite sends the FIN, after TLS' close_notify (RFC 8446, 6.1). It does not wait for a write in progress.
func (s *Socket) CloseWrite() error {
	if s.tls != nil {
		return s.tls.closeWrite()
	}
	return s.TCPConn.CloseWrite()
}

// Close closes the socket, with close_notify.
func (s *Socket) Close() error {
	if s.tls != nil {
		_ = s.tls.closeWrite()
	}
	return s.TCPConn.Close()
}

// Shut ends both directions and wakes all goroutines that wait on the socket. Close would wait for their system calls.
func (s *Socket) Shut() {
	_ = s.Raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// IsBroken reports whether a connection that is not being read has been reset.
func IsBroken(fd uintptr) bool {
	look := []unix.PollFd{{Fd: int32(fd)}}
	_, err := unix.Poll(look, 0)
	return err == nil && look[0].Revents&unix.POLLERR != 0
}

// Unsent is how many bytes the peer's kernel has not acknowledged; 0 if the socket is closed.
func (s *Socket) Unsent() int { return s.ioctl(unix.SIOCOUTQ) }

// Unread is how many bytes wait to be read.
func (s *Socket) Unread() int { return s.ioctl(unix.SIOCINQ) }

func (s *Socket) ioctl(req uint) (n int) {
	_ = s.Raw.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), req)
	})
	return n
}

// Transferred is how many bytes the kernel has received and the peer has acknowledged. Either may include a FIN.
func (s *Socket) Transferred() (received, sent uint64) {
	_ = s.Raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			received, sent = info.Bytes_received, info.Bytes_acked
		}
	})
	return received, sent
}

// Wake wakes the goroutine that waits in Raw.Read, whatever the deadline is. That goroutine calls WasWoken.
func (s *Socket) Wake() {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	s.woken = true
	_ = s.TCPConn.SetReadDeadline(time.Now())
}

// WasWoken reports whether err, of a read, is due to Wake rather than to the deadline, which it then restores.
func (s *Socket) WasWoken(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	s.deadline.Lock()
	defer s.deadline.Unlock()
	was := s.woken
	if s.woken = false; was {
		_ = s.TCPConn.SetReadDeadline(s.until)
	}
	return was
}

// SetReadDeadline replaces the read deadline, and a Wake that has had no effect yet shows when it expires.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	s.until = t
	return s.TCPConn.SetReadDeadline(t)
}

// SetDeadline sets the deadlines of both directions.
func (s *Socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}
