// Package listen has TCP listeners for IPv4 and IPv6 that can stop without resetting a client, and resume.
package listen

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Open is net.Listen, except that an address without a host, or with the host ::, takes IPv4 and IPv6 even if the
// loopback interface does not have 127.0.0.1: package net then listens on one family only.
// Nor does it take Multipath TCP, to which package net's listeners agree: such a client falls back to TCP. A connection
// of MPTCP has no original destination, and no numbers of its own (TCP_INFO, SIOCOUTQ).
func Open(network, address string) (net.Listener, error) {
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	host, port, err := net.SplitHostPort(address)
	if network != "tcp" || err != nil || host != "" && host != "::" {
		return plain.Listen(context.Background(), network, address)
	}
	dual := plain
	dual.Control = takeIPv4
	ln, err := dual.Listen(context.Background(), "tcp6", net.JoinHostPort("::", port))
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) { // a kernel without IPv6
		return plain.Listen(context.Background(), network, address)
	}
	return ln, err
}
