package admin

import (
	"net"
	"net/netip"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Plane is the pipe that the API shows and controls. Its methods may be called concurrently and repeatedly.
type Plane interface {
	Listeners() []pipe.Listener     // the current inbound listeners
	Connections() []pipe.Connection // the clients', the oldest first
	Drain()                         // make every response the last one of its connection
	CloseIdle()                     // close connections without requests, from now on
	StopAccepting()                 // close the listeners; open connections continue
	Resume()                        // undo Drain and CloseIdle
}

// addresses are those of a listener; the first names its statistics. One for all addresses is one socket for IPv4 and
// IPv6; Istio lists 0.0.0.0 with :: as an additional address, and tools look for the former.
func addresses(l *pipe.Listener) []netip.AddrPort {
	at := tcp.AddrPort(l.Addr)
	if at.Addr() == netip.IPv6Unspecified() {
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), at}
	}
	return []netip.AddrPort{at}
}

// statAddress is the address in the names of statistics: 0.0.0.0_8080, [__]_8080.
// Envoy replaces colons, which separate a name from its value.
func statAddress(l *pipe.Listener) string {
	return strings.ReplaceAll(addresses(l)[0].String(), ":", "_")
}

// nameOf is the listener's name; if it has none, it is made from its address, as in Istio.
func nameOf(l *pipe.Listener) string {
	if l.Name != "" {
		return l.Name
	}
	return statAddress(l)
}

// statPrefix is the middle of http.….downstream_cx_active. The semicolon is Istio's: it ends a prefix that contains
// dots.
func statPrefix(l *pipe.Listener) string {
	if l.Name != "" {
		return l.Name
	}
	return "inbound_" + statAddress(l) + ";"
}

// clusterOf is Istio's name for the app behind its own inbound listener.
func clusterOf(l *pipe.Listener) string {
	_, port, err := net.SplitHostPort(l.App)
	if err != nil {
		port = l.App
	}
	return "inbound|" + port + "||"
}
