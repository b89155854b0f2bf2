package tcp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a TCP connection for the hot path: its system calls bypass the scheduler's hand-over, which a non-blocking
// socket does not need, and allocate nothing. It joins the runtime's poller only when something has to be waited for.
//
// Receive, Send, CloseWrite, Close and Move use TLS if there is any. Everything else (Read, Write, deadlines, counts of
// bytes, Shut) acts on the TCP connection. One goroutine reads at a time, and Close follows the last read.
type Socket struct {
	tls    *tlsLayer // nil without TLS; set before the socket is used
	remote netip.AddrPort
	out    output // guarded by the caller's lock

	mu                    sync.Mutex // guards the fields below; held during system calls, of which none waits
	fd                    int        // -1 once it is closed
	file                  *os.File   // nil until something is waited for
	raw                   syscall.RawConn
	readUntil, writeUntil time.Time // deadlines as set; zero for none
	woken                 bool      // by Wake
	guarded               bool      // by GuardStream
	lingers               bool      // by SetLinger, which lasts
}

// output is a write in progress.
type output struct {
	left  []byte
	flags uintptr
	err   error
	rest  func(fd uintptr) bool // Socket.sendRest, made once
}

// NewSocket takes over the descriptor of a connection that does not block.
func NewSocket(fd int, remote netip.AddrPort) *Socket { return &Socket{fd: fd, remote: remote} }

// Send writes all of p. With more, the kernel holds the last segment back to share a packet with the next write or FIN.
func (s *Socket) Send(p []byte, more bool) error {
	if s.tls != nil {
		return s.tls.send(p, more)
	}
	return s.SendClear(p, more)
}

// SendClear is Send below TLS.
func (s *Socket) SendClear(p []byte, more bool) error {
	flags := uintptr(0)
	if more {
		flags = unix.MSG_MORE
	}
	return s.send(p, flags)
}

func (s *Socket) send(p []byte, flags uintptr) error {
	s.out.left, s.out.flags, s.out.err = p, flags|unix.MSG_NOSIGNAL, nil
	done := false
	if err := s.control(func(fd int) { done = s.sendRest(uintptr(fd)) }); err != nil || done {
		return errors.Join(err, s.out.err)
	}
	raw, err := s.poll()
	if err != nil {
		return err
	}
	if s.out.rest == nil {
		s.out.rest = s.sendRest
	}
	if err := waitError(raw.Write(s.out.rest)); err != nil {
		return err
	}
	return s.out.err
}

// sendRest returns false to wait for room.
func (s *Socket) sendRest(fd uintptr) bool {
	o := &s.out
	for len(o.left) > 0 {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&o.left[0])), uintptr(len(o.left)),
			o.flags, 0, 0)
		switch errno {
		case 0:
			o.left = o.left[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			o.err = os.NewSyscallError("send", errno)
			return true
		}
	}
	return true
}

// Receive reads into p without waiting. fd is the socket's own, from the callback of WhenReadable. It returns EAGAIN if
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

// Read reads below TLS.
func (s *Socket) Read(p []byte) (n int, err error) {
	var errno syscall.Errno
	if err := s.WhenReadable(func(fd uintptr) bool {
		n, errno = receive(fd, p)
		return errno != unix.EAGAIN
	}); err != nil {
		return 0, err
	}
	switch {
	case errno != 0:
		return 0, os.NewSyscallError("read", errno)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes below TLS.
func (s *Socket) Write(p []byte) (int, error) {
	err := s.SendClear(p, false)
	return len(p) - len(s.out.left), err
}

// CloseWrite sends the FIN, after TLS' close_notify (RFC 8446, 6.1). It does not wait for a write in progress.
func (s *Socket) CloseWrite() error {
	if s.tls != nil {
		return s.tls.closeWrite()
	}
	return s.shutdown(unix.SHUT_WR)
}

// Shut ends both directions and wakes all goroutines that wait on the socket. Close would wait for their system calls.
func (s *Socket) Shut() { _ = s.shutdown(unix.SHUT_RDWR) }

func (s *Socket) shutdown(how uintptr) error {
	var errno syscall.Errno
	err := s.control(func(fd int) {
		s.unguard()
		_, _, errno = syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), how, 0)
	})
	return errors.Join(err, failed("shutdown", errno))
}

// Close closes the socket, with close_notify.
func (s *Socket) Close() error {
	if s.tls != nil {
		_ = s.tls.closeWrite()
	}
	return s.CloseClear()
}

// CloseClear is Close below TLS.
func (s *Socket) CloseClear() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd := s.fd
	if fd < 0 {
		return net.ErrClosed
	}
	s.unguard()
	s.fd = -1
	if s.file != nil {
		return s.file.Close()
	}
	_, _, errno := syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) // without SO_LINGER it does not wait
	return failed("close", errno)
}

// SetLinger with 0 makes Close send a reset.
func (s *Socket) SetLinger(seconds int32) (err error) {
	closed := s.control(func(fd int) {
		s.guarded, s.lingers = false, true
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: seconds})
	})
	return errors.Join(closed, err)
}

// GuardStream lets the kernel send a reset if the process ends before CloseWrite, Shut or Close: after its FIN, a part
// of a stream would look complete.
func (s *Socket) GuardStream() {
	_ = s.control(func(fd int) {
		s.guarded = !s.lingers && unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) == nil
	})
}

// unguard undoes it: an orderly close sends the rest. The socket's mutex is held.
func (s *Socket) unguard() {
	if s.guarded {
		s.guarded = false
		_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	}
}

// SetNoDelay lets each write be sent at once, as the first one is in any case.
func (s *Socket) SetNoDelay() {
	_ = s.control(func(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) })
}

// LocalAddr is our end; empty if the socket is closed.
func (s *Socket) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(s.local()) }

func (s *Socket) local() netip.AddrPort {
	at, size := unix.RawSockaddrInet6{}, uint32(unix.SizeofSockaddrInet6)
	_ = s.control(func(fd int) {
		_, _, _ = syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&at)),
			uintptr(unsafe.Pointer(&size)))
	})
	return addrPort(&at)
}

// RemoteAddr is the peer's end.
func (s *Socket) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.remote) }

// Peer is RemoteAddr.
func (s *Socket) Peer() netip.AddrPort { return s.remote }

// control calls f unless the socket is closed.
func (s *Socket) control(f func(fd int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return net.ErrClosed
	}
	f(s.fd)
	return nil
}

func failed(name string, errno syscall.Errno) error {
	if errno != 0 {
		return os.NewSyscallError(name, errno)
	}
	return nil
}

// IsBroken reports whether a connection that is not being read has been reset.
func IsBroken(fd uintptr) bool { return has(int(fd), unix.POLLERR) }

// has reports whether a socket has an event of poll(2).
func has(fd int, event int16) bool {
	look := []unix.PollFd{{Fd: int32(fd), Events: event}}
	_, err := unix.Poll(look, 0)
	return err == nil && look[0].Revents&event != 0
}

// IsReset reports the same for a connection that may be closed already.
func (s *Socket) IsReset() (is bool) {
	closed := s.control(func(fd int) { is = IsBroken(uintptr(fd)) })
	return is || closed != nil
}

// IsFull reports whether even a small write may have to wait for the peer to read.
func (s *Socket) IsFull() (is bool) {
	_ = s.control(func(fd int) { is = !has(fd, unix.POLLOUT) })
	return is
}

// Unsent is how many bytes the peer's kernel has not acknowledged; 0 if the socket is closed.
func (s *Socket) Unsent() int { return s.ioctl(unix.SIOCOUTQ) }

// Unread is how many bytes wait to be read.
func (s *Socket) Unread() int { return s.ioctl(unix.SIOCINQ) }

func (s *Socket) ioctl(req uint) (n int) {
	_ = s.control(func(fd int) { n, _ = unix.IoctlGetInt(fd, req) })
	return n
}

// Transferred is how many bytes the kernel has received and the peer has acknowledged. Either may include a FIN.
func (s *Socket) Transferred() (received, sent uint64) {
	_ = s.control(func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			received, sent = info.Bytes_received, info.Bytes_acked
		}
	})
	return received, sent
}
