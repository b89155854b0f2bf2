package capture

import (
	"net"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// scene is a pod with an app and what stands for the pipe, and a client that is also the world outside.
type scene struct {
	*nettest.Net
	outside map[family]netip.Addr // one more address of the client
}

const appPort, otherPort = 8080, 8081

func newScene(t *testing.T) *scene {
	s := &scene{Net: nettest.New(t)}
	s.outside = map[family]netip.Addr{
		ipv4: s.Client.AddAddress(t, "192.0.2.7/32"),
		ipv6: s.Client.AddAddress(t, "2001:db8::7/128"),
	}
	for port, name := range map[int]string{15006: "inbound", 15001: "outbound"} {
		s.Pod.Answer(t, port, func(c net.Conn) string { return name + " " + originalDst(c.(*net.TCPConn)) })
	}
	for _, port := range []int{appPort, otherPort, 15020, 15021, 15090} {
		s.Pod.Answer(t, port, func(net.Conn) string { return "app" })
	}
	for _, port := range []int{80, 443, 15020} {
		s.Client.Answer(t, port, func(net.Conn) string { return "world" })
	}
	return s
}

// originalDst asks the kernel where a connection wanted to go.
func originalDst(c *net.TCPConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return err.Error()
	}
	answer := ""
	_ = raw.Control(func(fd uintptr) {
		// Both structures begin with the family and the port.
		var sa unix.RawSockaddrInet6
		length := uint32(unsafe.Sizeof(sa))
		level := unix.SOL_IP
		if c.LocalAddr().(*net.TCPAddr).IP.To4() == nil {
			level = unix.SOL_IPV6
		}
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), unix.SO_ORIGINAL_DST,
			uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&length)), 0)
		if errno != 0 {
			answer = errno.Error()
			return
		}
		address := netip.AddrFrom16(sa.Addr)
		if level == unix.SOL_IP {
			address = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&sa)).Addr)
		}
		port := (*[2]byte)(unsafe.Pointer(&sa.Port))
		answer = netip.AddrPortFrom(address, uint16(port[0])<<8|uint16(port[1])).String()
	})
	return answer
}

func (s *scene) install(t *testing.T, flags map[string]string) {
	t.Helper()
	c := resolve(t, Input{Flags: flags})
	if err := s.Pod.Do(func() error { return Install(c) }); err != nil {
		t.Fatal(err)
	}
}
