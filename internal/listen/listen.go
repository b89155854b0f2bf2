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
