package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
)

// freePort replaces port 0 with a free one. It avoids the kernel's range for outgoing connections, one of which could
// take the port before the app listens; next to a busy service this has happened.
func freePort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "0" {
		return address, nil
	}
	low, high := ephemeralPorts()
	for range 200 {
		at := lowestFree + rand.IntN(1<<16-lowestFree)
		if at >= low && at <= high {
			continue
		}
		free := net.JoinHostPort(host, strconv.Itoa(at))
		ln, err := net.Listen("tcp", free)
		if err == nil {
			return free, ln.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", fmt.Errorf("find a free port for the app at %s: %w", address, err)
		}
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("find a free port for the app at %s: %w", address, err)
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// lowestFree is above the usual ports of servers, including Istio's 15000 to 15090.
const lowestFree = 20000

// ephemeralPorts is the kernel's range for outgoing connections (ip(7)), or its default where it is not readable.
func ephemeralPorts() (low, high int) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(b), &low, &high)
	}
	if err != nil {
		return 32768, 60999
	}
	return low, high
}
