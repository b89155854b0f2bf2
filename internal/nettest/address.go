package nettest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports from which FreeAddress chooses: below those that the kernel gives to
// outgoing connections (ip_local_port_range, 32768 and up by default), one of
// which could take a port between our look and its use.
const firstPort, lastPort = 17000, 32000

// given are the ports that this process has handed out: two programs may be told
// of one before either listens, and two Envoys share a port without a word.
var given sync.Map

// FreeAddress is host with a port on which nobody listens, for a program that is
// to be told where to listen. It skips the test when the host cannot be had.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	var err error
	for range 200 {
		var ln net.Listener
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		address := net.JoinHostPort(host, strconv.Itoa(port))
		if ln, err = net.Listen("tcp", address); err == nil {
			_ = ln.Close()
			return address
		}
	}
	t.Skipf("no free port on %s: %v", host, err)
	return ""
}
