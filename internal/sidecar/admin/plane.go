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

// statAddress is the address in the names of statistics: 0.0.0.0_8080, [__]_8080. Envoy replaces colons, which separate
// a name from its value. One socket for IPv4 and IPv6 has the name that Istio gives it, by which tools find it.
func statAddress(l *pipe.Listener) string {
	at := tcp.AddrPort(l.Addr)
	if at.Addr() == netip.IPv6Unspecified() {
		at = netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())
	}
	return strings.ReplaceAll(at.String(), ":", "_")
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
