// Package freeport reserves TCP ports for servers that listen later.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// lowest is above the usual ports of servers, including Istio's 15000 to 15090.
const lowest = 20_000

// held has the reservations, which the garbage collector would end otherwise.
var held sync.Map

// Reserve returns a port of host, an IP address, that has no listener at any address: many servers listen at all of
// them. The port is outside of the kernel's range for outgoing connections if that leaves any, since one of them could
// take it before its server listens. No call returns it again, of any process in this network namespace, before release
// is called or this process ends.
func Reserve(host string) (port int, release func(), err error) {
	const tries = 1000
	low, high := ephemeral()
	for try := range tries {
		port := lowest + rand.IntN(1<<16-lowest)
		if low <= port && port <= high && try < tries/2 {
			continue
		}
		number := strconv.Itoa(port)
		// An abstract socket belongs to the network namespace, as the port does, and ends with this process.
		reserved, err := net.Listen("unix", "@lastcall-port-"+number)
		if err != nil {
			continue
		}
		// A program that starts meanwhile would hold the listeners until its exec.
		syscall.ForkLock.RLock()
		err = errors.Join(tryListen(net.JoinHostPort(host, number)), tryListen(":"+number))
		syscall.ForkLock.RUnlock()
		if err == nil {
			held.Store(reserved, nil)
			return port, func() { held.Delete(reserved); _ = reserved.Close() }, nil
		}
		_ = reserved.Close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, nil, fmt.Errorf("find a free TCP port of %s: %w", host, err)
		}
	}
	return 0, nil, fmt.Errorf("find a free TCP port of %s from %d on: none in %d tries", host, lowest, tries)
}

func tryListen(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return ln.Close()
}

// ephemeral is the kernel's range for outgoing connections (ip(7)), or its default where it is not readable.
func ephemeral() (low, high int) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(b), &low, &high)
	}
	if err != nil {
		return 32768, 60999
	}
	return low, high
}
