package gateway

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// bytesAcked returns how many bytes sent on c the peer's kernel has acknowledged (tcpi_bytes_acked of TCP_INFO, RFC
// 4898's tcpEStatsAppHCThruOctetsAcked, which on Linux counts the SYN as one).
func bytesAcked(c net.Conn) (uint64, bool) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, false
	}
	var info *unix.TCPInfo
	var infoErr error
	if err := raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); err != nil || infoErr != nil {
		return 0, false
	}
	return info.Bytes_acked, true
}
