package tcp

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Patience limits how long a connection may take to be established: an app with a full queue of connections lets it
// wait.
type Patience struct {
	Most time.Duration
	Gone func() bool // called every second: whether the connection is no longer wanted; nil: never

	Reserved *Reserved // to be used; nil: none
}

// Reserved is a descriptor for a connection that is dialled later.
type Reserved struct {
	fd, family int // fd is -1 when it has been used
}

// Reserve opens one for connections to an address, as of Dial, or to any.
func Reserve(address string) (*Reserved, error) {
	r := &Reserved{family: unix.AF_INET}
	if to, err := netip.ParseAddrPort(address); err == nil {
		r.family = familyOf(to)
	}
	var err error
	r.fd, err = openSocket(r.family)
	return r, err
}

// Close closes it unless it has been used.
func (r *Reserved) Close() {
	if r != nil && r.fd >= 0 {
		_ = unix.Close(r.fd)
		r.fd = -1
	}
}

// open uses it if it has the family, and replaces it otherwise.
func (r *Reserved) open(family int) (fd int, err error) {
	if r == nil || r.fd < 0 || r.family != family {
		r.Close()
		return openSocket(family)
	}
	fd, r.fd = r.fd, -1
	return fd, nil
}

func openSocket(family int) (int, error) {
	fd, _, errno := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family),
		unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return int(fd), failed("socket", errno)
}

func familyOf(to netip.AddrPort) int {
	if to.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

const gonePoll = time.Second

// Dial connects to host:port. The addresses of a name are tried one after another; an empty host is this machine.
func Dial(ctx context.Context, address string, wait Patience) (*Socket, error) {
	if to, err := netip.ParseAddrPort(address); err == nil {
		return dial(ctx, to, netip.Addr{}, wait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Most)
	defer cancel()
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, dialError(address, err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, dialError(address, err)
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", cmp.Or(host, "localhost"))
	if err != nil {
		return nil, dialError(address, err)
	}
	for i, one := range all {
		s, failed := dial(ctx, netip.AddrPortFrom(one.Unmap(), uint16(port)), netip.Addr{}, wait)
		if failed == nil {
			return s, nil
		}
		if i == 0 { // as package net, which reports the first
			err = failed
		}
	}
	return nil, err
}

// dial connects to an address, from a port of the source, or of the one that the kernel chooses. On the same machine a
// connection is established when connect(2) returns EINPROGRESS: it is called again, and only if it returns EALREADY
// waited for.
func dial(ctx context.Context, to netip.AddrPort, source netip.Addr, wait Patience) (*Socket, error) {
	for try := 0; ; try++ {
		s, err := dialOnce(ctx, to, source, wait)
		if err != nil {
			return nil, dialError(to.String(), err)
		}
		// To a free port of the range from which the kernel chooses, a socket may connect to itself.
		if try == 2 || s.local() != to {
			return s, nil
		}
		_ = s.Close()
	}
}

func dialOnce(ctx context.Context, to netip.AddrPort, source netip.Addr, wait Patience) (*Socket, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fd, err := wait.Reserved.open(familyOf(to))
	if err != nil {
		return nil, err
	}
	s := NewSocket(fd, to)
	if err := s.connect(ctx, to, source, wait); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// maxUnread is how many bytes of an app on this machine wait in its socket, about: otherwise the kernel lets that grow
// to many megabytes (net.ipv4.tcp_rmem) while a client does not read. On loopback more is no faster.
const maxUnread = 384 << 10

// connect waits as long as it may.
func (s *Socket) connect(ctx context.Context, to netip.AddrPort, source netip.Addr, wait Patience) error {
	if to.Addr().IsLoopback() || source.IsValid() { // a captured connection's app is here as well
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, maxUnread)
	}
	if !to.Addr().IsLoopback() {
		keepAlive(s.fd, appKeepAlive) // an app on this machine does not vanish
	}
	if source.IsValid() {
		if err := bindSource(s.fd, source); err != nil {
			return err
		}
	}
	at, size := sockaddr(to)
	var errno syscall.Errno
	attempt := func(fd uintptr) (done bool) {
		_, _, errno = syscall.RawSyscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&at)), size)
		if errno == unix.EISCONN {
			errno = 0
		}
		return errno != unix.EINPROGRESS && errno != unix.EALREADY && errno != unix.EINTR
	}
	for range 2 {
		if attempt(uintptr(s.fd)) {
			return failed("connect", errno)
		}
	}
	raw, err := s.poll()
	if err != nil {
		return err
	}
	late := time.Now().Add(wait.Most)
	next := func() {
		until := time.Now().Add(gonePoll)
		if until.After(late) {
			until = late
		}
		_ = s.SetWriteDeadline(until)
	}
	next()
	stop := context.AfterFunc(ctx, func() { _ = s.SetWriteDeadline(time.Unix(1, 0)) })
	for {
		err = raw.Write(attempt)
		if !errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(late) || wait.Gone != nil && wait.Gone() {
			break
		}
		if next(); ctx.Err() != nil {
			break
		}
	}
	if !stop() {
		return ctx.Err()
	}
	_ = s.SetWriteDeadline(time.Time{})
	return errors.Join(err, failed("connect", errno))
}

// dialError is an error of dialling, as from package net.
func dialError(address string, err error) error {
	to := net.Addr(nil)
	if at, failed := netip.ParseAddrPort(address); failed == nil {
		to = net.TCPAddrFromAddrPort(at)
	}
	return &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: err}
}

// sockaddr is an address for connect(2), and its size.
func sockaddr(to netip.AddrPort) (at unix.RawSockaddrInet6, size uintptr) {
	port := networkOrder(to.Port())
	if to.Addr().Is4() {
		(*(*unix.RawSockaddrInet4)(unsafe.Pointer(&at))) = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port,
			Addr: to.Addr().As4()}
		return at, unix.SizeofSockaddrInet4
	}
	zone, _ := strconv.Atoi(to.Addr().Zone())
	if zone == 0 && to.Addr().Zone() != "" {
		if i, err := net.InterfaceByName(to.Addr().Zone()); err == nil {
			zone = i.Index
		}
	}
	at = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: port, Addr: to.Addr().As16(), Scope_id: uint32(zone)}
	return at, unix.SizeofSockaddrInet6
}

// addrPort is the opposite of sockaddr, with IPv4 as IPv4.
func addrPort(at *unix.RawSockaddrInet6) netip.AddrPort {
	port := networkOrder(at.Port)
	if at.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(at)).Addr), port)
	}
	ip := netip.AddrFrom16(at.Addr).Unmap()
	if at.Scope_id != 0 {
		ip = ip.WithZone(strconv.Itoa(int(at.Scope_id)))
	}
	return netip.AddrPortFrom(ip, port)
}
