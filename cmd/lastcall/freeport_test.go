package main

import (
	"net"
	"strconv"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func freeLoopback(t *testing.T) string {
	t.Helper()
	address, err := freePort("127.0.0.1:0")
	must.Do(t, err)
	return address
}

func TestFreePortIsNoOutgoingConnections(t *testing.T) {
	low, high := ephemeralPorts()
	for range 50 {
		address, err := freePort("127.0.0.1:0")
		must.Do(t, err)
		_, port, _ := net.SplitHostPort(address)
		if n, _ := strconv.Atoi(port); n < lowestFree || n >= low && n <= high {
			t.Errorf("port %s lies within %d to %d, or below %d", port, low, high, lowestFree)
		}
	}
	if got, _ := freePort("127.0.0.1:8080"); got != "127.0.0.1:8080" {
		t.Errorf("a given port became %s", got)
	}
}
