// Package relay is the least that a proxy on TCP can do: of each message one receive and one send, in one loop around
// epoll(7), on one thread that blocks in the kernel. It looks at nothing, waits for no socket to become writable and
// has no deadline: its cost is the minimum of every proxy. It is not for use.
package relay

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Serve relays the connections that come to one address of IPv4 to another. It returns only with an error.
func Serve(listen, app string) error {
	from, err := resolve(listen)
	if err != nil {
		return err
	}
	r := relay{ends: map[int32]*end{}, buf: make([]byte, 8<<10)}
	if r.app, err = resolve(app); err != nil {
		return err
	}
	if r.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("create an epoll: %w", err)
	}
	if r.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err == nil {
		err = errors.Join(unix.SetsockoptInt(r.listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(r.listener, from), unix.Listen(r.listener, 1024), r.watch(r.listener, unix.EPOLLIN))
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	return r.run()
}

func resolve(address string) (*unix.SockaddrInet4, error) {
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}, nil
}

type relay struct {
	app            *unix.SockaddrInet4
	poll, listener int
	ends           map[int32]*end
	buf            []byte
}

// end is one socket of a pair.
type end struct {
	fd   int
	peer *end
}

func (r *relay) watch(fd int, events uint32) error {
	return unix.EpollCtl(r.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (r *relay) run() error {
	events := make([]unix.EpollEvent, 128)
	for {
		// Without notifying the runtime: the thread is not shared.
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_WAIT, uintptr(r.poll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), ^uintptr(0), 0, 0)
		if errno != 0 && errno != unix.EINTR {
			return fmt.Errorf("wait for events: %w", errno)
		}
		if errno != 0 {
			continue
		}
		for _, event := range events[:n] {
			if event.Fd == int32(r.listener) {
				r.accept()
			} else if e := r.ends[event.Fd]; e != nil {
				r.pass(e, event.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
			}
		}
	}
}

// pass passes on what has come. A short read has emptied the socket, unless its end has come too (epoll(7)).
func (r *relay) pass(e *end, ends bool) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(e.fd), uintptr(unsafe.Pointer(&r.buf[0])), uintptr(len(r.buf)), 0, 0, 0)
		switch {
		case errno == unix.EAGAIN:
			return
		case errno != 0 || n == 0:
			r.forget(e)
			return
		}
		sent, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(e.peer.fd), uintptr(unsafe.Pointer(&r.buf[0])), n, unix.MSG_NOSIGNAL, 0, 0)
		if errno != 0 || sent < n { // no wait here: the load's side sees a loss
			r.forget(e)
			return
		}
		if int(n) < len(r.buf) && !ends {
			return
		}
	}
}

func (r *relay) accept() {
	client, _, err := unix.Accept4(r.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return
	}
	app, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Connect(app, r.app), unix.SetNonblock(app, true))
	}
	a, b := &end{fd: client}, &end{fd: app}
	a.peer, b.peer = b, a
	for _, e := range []*end{a, b} {
		if err == nil {
			r.ends[int32(e.fd)] = e
			err = errors.Join(unix.SetsockoptInt(e.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), r.watch(e.fd, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLET))
		}
	}
	if err != nil {
		r.forget(a)
	}
}

func (r *relay) forget(e *end) {
	for _, e := range []*end{e, e.peer} {
		delete(r.ends, int32(e.fd))
		_ = unix.Close(e.fd)
	}
}
