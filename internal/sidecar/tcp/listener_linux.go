package tcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/listen"
)

// Listener accepts Sockets.
type Listener struct {
	file *os.File
	raw  syscall.RawConn
	addr net.Addr
}

// maxUnsent is how many bytes a client's socket takes in addition to those that its client has room for.
const maxUnsent = 128 << 10

// Accepting takes over a listener. Accepted sockets inherit its options: no delay of small segments, at most maxUnsent
// bytes that are not sent, and probes after idle of silence and as often, unless that is negative.
func Accepting(ln *net.TCPListener, idle time.Duration) (*Listener, error) {
	file, err := ln.File() // of the same socket
	_ = ln.Close()
	if err != nil {
		return nil, fmt.Errorf("take over the listener on %s: %w", ln.Addr(), err)
	}
	l := &Listener{file: file, addr: ln.Addr()}
	if l.raw, err = file.SyscallConn(); err == nil {
		err = l.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
			keepAlive(int(fd), idle)
		})
	}
	return l, err
}

// appKeepAlive is the default interval of net.Dialer.
const appKeepAlive = 15 * time.Second

// keepAliveProbes without an answer end a connection.
const keepAliveProbes = 9

// keepAlive sets the time of silence after which the kernel probes the peer, and the time between probes; negative for
// no probes.
func keepAlive(fd int, idle time.Duration) {
	on, seconds := 1, max(1, int(idle/time.Second))
	if idle < 0 {
		on = 0
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, on)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes)
}

// Accept returns the next connection, a *Socket.
func (l *Listener) Accept() (net.Conn, error) {
	var s *Socket
	var errno syscall.Errno
	if err := l.raw.Read(func(fd uintptr) bool {
		s, errno = accept(fd)
		return errno != unix.EAGAIN
	}); err != nil {
		return nil, waitError(err)
	}
	if errno != 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: os.NewSyscallError("accept4", errno)}
	}
	return s, nil
}

// TakeQueued accepts the connections that wait (see listen.TakeQueued).
func (l *Listener) TakeQueued(ctx context.Context, serve func(net.Conn)) error {
	return listen.TakeQueuedBy(ctx, l.raw, func(listener int) bool {
		s, errno := accept(uintptr(listener))
		if errno == 0 {
			serve(s)
		}
		return errno == 0
	})
}

func accept(listener uintptr) (*Socket, syscall.Errno) {
	for {
		var at unix.RawSockaddrInet6
		size := uint32(unix.SizeofSockaddrInet6)
		fd, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, listener, uintptr(unsafe.Pointer(&at)),
			uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			return NewSocket(int(fd), addrPort(&at)), 0
		case unix.EINTR, unix.ECONNABORTED: // its client has gone again
		default:
			return nil, errno
		}
	}
}

// SetDeadline sets the time when Accept returns os.ErrDeadlineExceeded.
func (l *Listener) SetDeadline(t time.Time) error { return l.file.SetReadDeadline(t) }

// Close closes the socket.
func (l *Listener) Close() error { return l.file.Close() }

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.addr }
