package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OriginalDestination is where a captured connection was going (SO_ORIGINAL_DST, conntrack). It returns ErrNotCaptured
// for a connection that was made to the capture's own port.
func OriginalDestination(c *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	failed := raw.Control(func(fd uintptr) { to, err = originOf(fd, AddrPort(c.LocalAddr())) })
	return to, errors.Join(failed, err)
}

// OriginalDestination is the same for a Socket.
func (s *Socket) OriginalDestination() (to netip.AddrPort, err error) {
	local := s.local()
	closed := s.control(func(fd int) { to, err = originOf(uintptr(fd), local) })
	return to, errors.Join(closed, err)
}

func originOf(fd uintptr, local netip.AddrPort) (to netip.AddrPort, err error) {
	level, option := unix.SOL_IPV6, ip6tSoOriginalDst
	if local.Addr().Is4() {
		level, option = unix.SOL_IP, unix.SO_ORIGINAL_DST
	}
	at, size := unix.RawSockaddrInet6{}, uint32(unix.SizeofSockaddrInet6)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&size)), 0)
	if errno == 0 {
		to = addrPort(&at)
	}
	switch {
	case errno == unix.ENOENT || errno == unix.ENOPROTOOPT, errno == 0 && to == local:
		return to, ErrNotCaptured // conntrack knows no other destination, or does not run
	case errno != 0:
		return to, fmt.Errorf("get the original destination: %w", errno)
	}
	return to, nil
}

// ip6tSoOriginalDst is IP6T_SO_ORIGINAL_DST (linux/netfilter_ipv6/ip6_tables.h).
const ip6tSoOriginalDst = 80

// ErrNotCaptured is a connection that no capture rule has redirected.
var ErrNotCaptured = errors.New("connection was made to the capture port itself, not redirected there")

func networkOrder(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// AddrPort is a TCP address, with IPv4 as IPv4.
func AddrPort(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// KeepAlive detects dead peers of captured outbound connections. It probes long before conntrack forgets a connection
// that one side has ended (nf_conntrack_tcp_timeout_close_wait, 60 s): its answer would no longer be translated.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: appKeepAlive, Interval: appKeepAlive, Count: 4}
