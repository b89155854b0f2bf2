package nettest

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// FreeAddress returns host, an IP address, with a port that is reserved until the
// end of the test, as the listening address of a program. It skips the test if the
// host is not available.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	port, release, err := reserve(host)
	if err != nil {
		t.Skipf("no free port on %s: %v", host, err)
	}
	t.Cleanup(release)
	return net.JoinHostPort(host, fmt.Sprint(port))
}

// reserve holds a port by a socket that is bound to it and does not listen. Bound
// without SO_REUSEADDR, it does not share the port with any outgoing
// connection, any other socket on port 0, or another reservation. With the option
// set afterwards, it shares the port with sockets that set it as well, as servers do
// (inet_csk_bind_conflict of Linux).
func reserve(host string) (port int, release func(), err error) {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return 0, nil, err
	}
	family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: ip.As16()})
	if ip.Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Addr: ip.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	release = func() { _ = unix.Close(fd) }
	if err = unix.Bind(fd, at); err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		release()
		return 0, nil, err
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		port = at.Port
	case *unix.SockaddrInet6:
		port = at.Port
	}
	return port, release, nil
}
