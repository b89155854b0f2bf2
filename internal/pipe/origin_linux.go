package pipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// originalDst is where a connection was going before the capture turned it to
// us (SO_ORIGINAL_DST, conntrack). errNotCaptured says that it came to us by its
// own will.
func originalDst(c *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	local := addrPort(c.LocalAddr())
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		if local.Addr().Is4() {
			var sa unix.RawSockaddrInet4
			if errno = getOrigin(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST, unsafe.Pointer(&sa), unsafe.Sizeof(sa)); errno == 0 {
				to = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), networkOrder(sa.Port))
			}
			return
		}
		var sa unix.RawSockaddrInet6
		if errno = getOrigin(fd, unix.SOL_IPV6, ip6tSoOriginalDst, unsafe.Pointer(&sa), unsafe.Sizeof(sa)); errno == 0 {
			to = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), networkOrder(sa.Port))
		}
	})
	switch {
	case err != nil:
		return to, err
	case errno == unix.ENOENT || errno == unix.ENOPROTOOPT, errno == 0 && to == local:
		return to, errNotCaptured // conntrack knows of no other destination, or does not run
	case errno != 0:
		return to, fmt.Errorf("ask for the original destination: %w", errno)
	}
	return to, nil
}

// ip6tSoOriginalDst is IP6T_SO_ORIGINAL_DST (linux/netfilter_ipv6/ip6_tables.h).
const ip6tSoOriginalDst = 80

var errNotCaptured = errors.New("it was not captured: somebody has connected to the capture's own port")

func getOrigin(fd uintptr, level, option int, sa unsafe.Pointer, size uintptr) syscall.Errno {
	length := uint32(size)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), uintptr(option), uintptr(sa), uintptr(unsafe.Pointer(&length)), 0)
	return errno
}

func networkOrder(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// addrPort is an address with IPv4 as IPv4.
func addrPort(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// source4 is Istio's source address of ours: the capture leaves what comes from
// it alone, so that nothing comes round to us again.
var source4 = netip.MustParseAddr("127.0.0.6")

// dialCaptured connects to the app that a captured connection was meant for: at
// the address that the client wanted, never at loopback instead. What listens
// there alone (a debug port, an admin API) has not asked for the network, and the
// capture must not open it; Istio forwards so since 1.10.
func dialCaptured(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if to.Addr().Is6() {
		// Istio's ::6 is there only if its init container has added it; ours
		// is told apart by the user it runs as.
		return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source4, 0))}
	app, err := d.DialContext(ctx, "tcp", to.String())
	if errors.Is(err, syscall.EINVAL) { // not an address of this pod: it forwards for others
		return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	}
	return app, err
}

// keepAlive finds dead peers of connections on which nobody speaks for long.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4}
