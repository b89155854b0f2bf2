// Package listen has TCP listeners that take IPv4 and IPv6, and that can stop without resetting a
// client, and resume. It imports nothing but the standard library, and works on every system.
package listen

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Open is net.Listen, except that an address without a host, or with the host ::, takes
// IPv4 and IPv6 whatever addresses the loopback interface has. Package net decides by
// binding ::ffff:127.0.0.1, and without 127.0.0.1 it listens on one of both families
// only.
func Open(network, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if network != "tcp" || err != nil || host != "" && host != "::" {
		return net.Listen(network, address)
	}
	dual := net.ListenConfig{Control: takeIPv4}
	ln, err := dual.Listen(context.Background(), "tcp6", net.JoinHostPort("::", port))
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) { // a kernel without IPv6
		return net.Listen(network, address)
	}
	return ln, err
}
